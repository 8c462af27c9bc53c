"""`simulate` and `record` at the command line: the format on stdout, one line and exit code 2 for bad input."""

import json

import pytest
from click.testing import CliRunner

from kernelsearch.cli import main
from kernelsearch.record import recorded_space
from recorded_spaces import made

BAD = {
    "not_json": "rows",
    "no_rows": '{"task": "t", "device": "d", "parameters": {"a": [1]}}',
    "unknown_failure": '{"task": "t", "device": "d", "parameters": {"a": [1]}, '
    '"rows": [{"config": {"a": 1}, "failure": "no"}]}',
    "duplicate": '{"task": "t", "device": "d", "parameters": {"a": [1]}, "rows": ['
    '{"config": {"a": 1}, "time_us": 2}, {"config": {"a": 1}, "time_us": 3}]}',
    "nan": '{"task": "t", "device": "d", "parameters": {"a": [1]}, "rows": [{"config": {"a": 1}, "time_us": NaN}]}',
}


def run(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


def test_the_output_is_the_contracts(tmp_path):
    space = made()
    recorded_space.write(space, tmp_path / "space.json.xz")
    done = run("simulate", tmp_path / "space.json.xz", "--strategy", "random", "--trials", 30, "--seeds", 3)
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert list(found) == ["strategy", "optimum_us", "runs"]
    assert found["strategy"] == "random" and found["optimum_us"] == space.optimum_us
    assert [run["seed"] for run in found["runs"]] == [0, 1, 2]
    assert all(list(run) == ["seed", "best_us"] and len(run["best_us"]) == 30 for run in found["runs"])
    assert "score" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", BAD)
def test_a_bad_space_is_one_line_and_exit_code_2(tmp_path, name):
    (tmp_path / "bad.json").write_text(BAD[name])
    done = run("simulate", tmp_path / "bad.json")
    assert done.exit_code == 2 and not done.stdout
    assert len(done.stderr.splitlines()) == 1 and "bad.json" in done.stderr and "Traceback" not in done.stderr


def test_an_unknown_strategy_and_a_missing_file(tmp_path):
    recorded_space.write(made(), tmp_path / "space.json")
    for arguments in (("space.json", "--strategy", "nope"), ("nothing.json",)):
        done = run("simulate", tmp_path / arguments[0], *arguments[1:])
        assert done.exit_code == 2 and len(done.stderr.splitlines()) == 1


def test_record_needs_a_gpu_and_a_place_to_write(tmp_path, monkeypatch):
    from kernelsearch.trial import bench

    monkeypatch.setattr(bench, "find_live_device", lambda: None)
    (tmp_path / "task.py").write_text("")
    done = run("record", tmp_path / "task.py", tmp_path / "out.json")
    assert done.exit_code == 2 and "record needs a GPU" in done.stderr
    done = run("record", tmp_path / "task.py", tmp_path / "no folder" / "out.json")
    assert done.exit_code == 2 and "cannot be written" in done.stderr
