"""Recording a whole space, on a simulated GPU: what was measured is kept, and a cut recording goes on."""

import dataclasses
import json

import pytest
from click.testing import CliRunner

from kernelsearch.core.errors import SpaceError
from kernelsearch.tasks import shipped
from kernelsearch.trial import bench as benches
from kernelsearch.trial import race_look
from kernelsearch.trial.bench import Bench
from recorded import record, space
from simulated_gpu import simulate_gpu


def test_a_space_is_recorded_and_a_cut_one_goes_on(borrowing, monkeypatch, tmp_path):
    out, said = tmp_path / "space.json.xz", []
    with Bench.open(shipped.path("softmax"), "h100", compile_workers=1) as bench:
        simulate_gpu(bench)
        monkeypatch.setattr(race_look, "look_for_races", lambda *_: race_look.Look())
        facts = dataclasses.replace(bench.facts, space={"num_warps": (4, 8)})
        empty, configs = record.plan_recording(bench, facts)
        header = {k: v for k, v in space.as_json(empty).items() if k != "rows"} | {"digest": facts.digest}
        kept = {"config": configs[0], "failure": "compile"}
        (tmp_path / "space.json.xz.part").write_text(f"{json.dumps(header)}\n{json.dumps(kept)}\n{{torn")
        assert record.record_space(bench, facts, str(out), said.append)
        assert not (tmp_path / "space.json.xz.part").exists() and "1 rows were recorded before" in said[0]
        first, second = space.read(out).rows
        assert first.failure == "compile" and second.time_us == 11.0 and second.samples_us == (10.0, 11.0, 12.0)
        (tmp_path / "other.json.part").write_text("{}\n")
        with pytest.raises(SpaceError, match="of another recording"):
            record.record_space(bench, facts, str(tmp_path / "other.json"), said.append)


def test_it_needs_a_gpu_and_a_place_to_write(monkeypatch, tmp_path):
    monkeypatch.setattr(benches, "find_live_device", lambda: None)
    (tmp_path / "task.py").write_text("")
    for out, words in (("out.json", "needs a GPU"), ("no folder/out.json", "cannot be written")):
        done = CliRunner().invoke(record.main, [str(tmp_path / "task.py"), str(tmp_path / out)])
        assert done.exit_code == 2 and words in done.stderr
