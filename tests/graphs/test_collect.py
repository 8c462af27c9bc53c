"""`collect`: a script runs as it is, its regions become tasks, and what could be gained is said."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from kernelsearch.cli import main
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.record import region_rows
from kernelsearch.record.store import Store

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def collected(tmp_path_factory):
    """A database with the regions of `small_step.py`, and what was printed."""
    folder = tmp_path_factory.mktemp("collected")
    command = [sys.executable, "-m", "kernelsearch", "collect", str(HERE / "small_step.py"), "96", "--db", "model.db"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and "loss 0." in done.stderr, done.stderr  # what the script prints
    return folder, done.stdout


@pytest.mark.slow
def test_what_could_be_gained_is_listed(collected):
    folder, text = collected
    assert "loss 0." not in text and "2 graphs, called 2 times" in text
    assert "if every region ran at the memory's speed, the step would be" in text
    assert "(estimated)" in text and "products" in text and "attention 0.0%" in text
    with Store.open(folder / "model.db", write=False) as store:
        uses = region_rows.load_uses(store)
        (model,) = store.query("SELECT * FROM model")
    assert {u["direction"] for u in uses} == {"forward", "backward"}
    total = sum(u["uses"] * u["time_us"] for u in uses)
    assert total == pytest.approx(model["region_us"]) and model["region_us"] < model["step_us"]
    assert all(u["least_us"] <= u["time_us"] and u["bytes"] > 0 for u in uses)
    launch_us = target_by_name("h100").launch_us
    assert all(u["least_us"] > launch_us for u in uses)
    assert model["product_us"] > 3 * launch_us  # x W, and two of the gradients: each is a kernel at least


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
        ("print(end='')", "calls no compiled graph"),
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


def collect(folder, text, *more):
    (folder / "script.py").write_text("import torch\n" + text)
    return CliRunner().invoke(main, ["collect", str(folder / "script.py"), "--db", str(folder / "model.db"), *more])


SUMS = "print('ran')\ntorch.compile(lambda x: (x * 2).sin().sum(-1))(torch.randn(8, 96))\n"


@pytest.mark.slow
def test_a_databases_text_is_never_written_as_code(tmp_path):
    assert collect(tmp_path, SUMS).exit_code == 0
    (file,) = (tmp_path / "model_regions").glob("region_*.py")
    before = file.read_text()
    with Store.open(tmp_path / "model.db") as store, store.transaction():
        store.database.execute("UPDATE region SET name = ?, code = ?", ['a"""; import os; """b', "import os"])
    assert collect(tmp_path, SUMS).exit_code == 0 and file.read_text() == before
    with Store.open(tmp_path / "model.db") as store, store.transaction():
        store.database.execute("PRAGMA defer_foreign_keys = ON")
        store.database.execute("UPDATE region SET digest = '../../up'")
        store.database.execute("UPDATE region_use SET region = '../../up'")
    done = CliRunner().invoke(main, ["optimize", "--hours", "0.01", "--db", str(tmp_path / "model.db")])
    assert done.exit_code == 2 and "that has no digest" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "torch.compile(lambda x: x.t())(torch.randn(8, 9))",
        "torch.compile(lambda x: (x * 2).sin())(torch.randn(0, 9))",
        "x = torch.randn(9, 9)\ntorch.compile(lambda x: (x @ x + x[0]).relu())(x)",
        "torch._dynamo.config.capture_dynamic_output_shape_ops = True\n"
        "torch.compile(lambda x: (x[x.nonzero()[:, 0]] * 2).sin().sum())(torch.arange(9.0))",
    ],
    ids=["views alone", "no elements", "a product that Inductor makes one with its sum", "sizes that only a run knows"],
)
def test_odd_graphs_are_listed_all_the_same(tmp_path, text):
    done = collect(tmp_path, text)
    assert done.exit_code == 0 and "of the step: " in done.stdout, done.output


LAYERS = """
from torch import nn
torch.manual_seed(0)
layer, head = (torch.compile(nn.Sequential(nn.LayerNorm(n), nn.GELU())) for n in (80, 96))
x = torch.randn(8, 80)
with torch.no_grad():
    for step in range(2):
        for _ in range({}):
            x = layer(x)
        head(torch.randn(8, 96))
"""


@pytest.mark.slow
def test_a_layer_counts_as_often_as_a_step_calls_it(tmp_path):
    found = json.loads(collect(tmp_path, LAYERS.format(6), "--json").stdout)  # whatever the script prints
    uses = {max(use["sizes"].values()): use for use in found["uses"]}
    assert (uses[80]["uses"], uses[96]["uses"], found["calls"]) == (6, 1, 7)
    assert uses[80]["share"] == pytest.approx(6 * uses[80]["time_us"] / found["model"]["step_us"])


BROKEN = """
torch._dynamo.config.capture_dynamic_output_shape_ops = False
@torch.compile
def route(x):
    for i in range(2):
        x = x + x[torch.where(x > i)[0]].sum()
    return x
route(torch.randn(8))
"""


def test_what_torch_compile_gives_up_is_told_with_its_reason(tmp_path):
    said = collect(tmp_path, BROKEN).stderr
    assert (
        "torch.compile gives it up. " in said and "capture_dynamic_output_shape_ops" in said and "Traceback" not in said
    )


MANY = """
@torch.compile
def update(params, grads):
    return [p * 0.9 - g for p, g in zip(torch._foreach_mul(params, 2.0), grads)]
update([torch.randn(8) for _ in range(40)], [torch.randn(8) for _ in range(40)])
total = torch.compile(lambda xs: sum(x.sin() for x in xs))
total([torch.randn(8) for _ in range({})])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("inputs", "regions"), [(63, 1), (64, 0)])
def test_a_region_with_more_inputs_than_an_operator_takes_stays_torch_compiles(tmp_path, inputs, regions):
    found = json.loads(collect(tmp_path, MANY.format(inputs), "--json").stdout)
    assert sum("sin" in region["name"] for region in found["regions"].values()) == regions
    done = CliRunner().invoke(main, ["apply", str(tmp_path / "script.py"), "--db", str(tmp_path / "model.db")])
    assert done.exit_code == 0, done.output


TOPK = """
x = torch.randn(7, 40, 5, requires_grad=True)
torch.compile(lambda x: (x.topk(3, dim=1).values * 2).exp().sum())(x).backward()
"""


@pytest.mark.slow
def test_places_that_scatter_writes_to_differ(tmp_path):
    assert collect(tmp_path, TOPK).exit_code == 0
    files = [f for f in (tmp_path / "model_regions").glob("region_*.py") if "aten.scatter" in f.read_text()]
    assert len(files) == 1
    scope = {}
    exec(files[0].read_text(), scope)
    (places,) = (x for x in scope["get_inputs"]() if x.dtype == torch.int64)
    assert places.shape == (7, 3, 5) and all(
        len(set(column)) == 3 for row in places.transpose(1, 2).tolist() for column in row
    )


def test_json_has_the_uses(tmp_path, collected):
    folder, _ = collected
    with Store.open(folder / "model.db", write=False) as store:
        assert json.dumps(region_rows.load_uses(store))
