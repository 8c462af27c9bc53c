"""`collect`: a script runs as it is, its regions become tasks, and what could be gained is said."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelsearch.cli import main
from kernelsearch.record import region_rows
from kernelsearch.record.store import Store

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """A database with the regions of `small_step.py`, and what was printed."""
    folder = tmp_path_factory.mktemp("collected")
    command = [sys.executable, "-m", "kernelsearch", "collect", str(HERE / "small_step.py"), "96", "--db", "model.db"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_what_could_be_gained_is_listed(collected):
    folder, text = collected
    assert "loss 0." in text and "2 graphs" in text
    assert "if every region ran at the memory's speed, the step would be" in text
    assert "(estimated)" in text and "products" in text and "attention 0.0%" in text
    with Store.open(folder / "model.db", write=False) as store:
        uses = region_rows.load_uses(store)
        (model,) = store.query("SELECT * FROM model")
    assert {u["direction"] for u in uses} == {"forward", "backward"}
    total = sum(u["uses"] * u["time_us"] for u in uses)
    assert total == pytest.approx(model["region_us"]) and model["region_us"] < model["step_us"]
    assert all(u["least_us"] <= u["time_us"] and u["bytes"] > 0 for u in uses)


def test_regions_are_task_files_of_plain_torch(collected):
    folder, _ = collected
    files = sorted((folder / "model_regions").glob("region_*.py"))
    with Store.open(folder / "model.db", write=False) as store:
        assert [f.stem.removeprefix("region_") for f in files] == sorted(region_rows.load_regions(store))
    norm = next(f for f in files if "var_mean" in f.read_text())
    found = CliRunner().invoke(main, ["seed", str(norm)])
    assert found.exit_code == 0 and "def launch_seed(" in found.output and "SHAPES = [{'d0': 96" in norm.read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("print(1)", "calls no compiled graph"),
        ("import torch\ntorch.compile(torch.sin)", "calls no compiled graph"),
        ("1 / 0", "ends with an error: ZeroDivisionError: division by zero (line 1)"),
        (None, "there is no file"),
    ],
)
def test_a_script_that_cannot_be_looked_at_is_one_line(tmp_path, text, expected):
    script = tmp_path / "script.py"
    if text is not None:
        script.write_text(text)
    done = CliRunner().invoke(main, ["collect", str(script), "--db", str(tmp_path / "model.db")])
    assert done.exit_code == 2 and expected in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "model.db").exists()


def test_json_has_the_uses(tmp_path, collected):
    folder, _ = collected
    with Store.open(folder / "model.db", write=False) as store:
        assert json.dumps(region_rows.load_uses(store))
