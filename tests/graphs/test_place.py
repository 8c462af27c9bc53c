"""A model's regions are searched, its kernels come into it as options, and `apply` compares values without a GPU."""

import subprocess
import sys
from unittest import mock

import pytest
import torch
from click.testing import CliRunner
from small_step import Block

from kernelsearch.cli import main
from kernelsearch.core.types import Evidence
from kernelsearch.graphs import apply, model_options, schedule
from kernelsearch.graphs.replace import PlacedKernels
from kernelsearch.graphs.schedule import RegionTurn
from kernelsearch.graphs.watch import RegionPass
from kernelsearch.record import region_rows
from kernelsearch.record.store import Store


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """A database with a region of a compiled model, searched without a GPU."""
    folder = tmp_path_factory.mktemp("searched")
    script = folder / "gate.py"
    script.write_text(
        "import torch\n\n\ndef gate(x, y):\n    return torch.sigmoid(x) * y + torch.tanh(y).sum(-1, keepdim=True)\n\n\n"
        "torch.manual_seed(0)\nprint(torch.compile(gate)(torch.randn(64, 96), torch.randn(64, 96)).sum().item())\n"
    )
    for command in (
        ["collect", "gate.py", "--db", "m.db"],
        ["optimize", "--db", "m.db", "--hours", "1", "--trials", "3"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "kernelsearch", *command], cwd=folder, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
    return folder, done


def test_rounds_of_trials_go_to_a_region_until_they_gain_nothing(searched):
    folder, done = searched
    with Store.open(folder / "m.db", write=False) as store:
        (region,) = region_rows.load_regions(store)
        best = region_rows.find_best(store, f"region_{region}")
        assert best["trials"] >= 9 and len(store.load_runs()) == 1  # one run, which goes on
    assert f"region {region} (sigmoid mul tanh sum add): " in done.stderr
    assert region in done.stdout and "alone" in done.stdout


def test_the_largest_expected_gain_comes_first():
    small = RegionTurn("a", "", "", share=0.1, floor=0.5)
    assert RegionTurn("b", "", "", share=0.2, floor=0.5).left == pytest.approx(2 * small.left)
    assert RegionTurn("c", "", "", share=0.1, floor=0.5, score=0.75).left == pytest.approx(small.left / 2)
    assert RegionTurn("d", "", "", share=0.1, floor=0.5, stale=1).left == pytest.approx(small.left / 2)
    assert RegionTurn("e", "", "", share=0.1, floor=0.5, stale=schedule.STALE).left == 0
    assert RegionTurn("f", "", "", share=0.1, floor=0.5, score=0.4).left == 0


def test_optimize_says_what_it_needs(tmp_path):
    for command in (["optimize"], ["optimize", "task.py", "--hours", "1"]):
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 2 and "name a TASK.py, or give --hours" in done.stderr
    with Store.open(tmp_path / "empty.db"):
        pass
    done = CliRunner().invoke(main, ["optimize", "--hours", "1", "--db", str(tmp_path / "empty.db")])
    assert done.exit_code == 2 and "has no regions: `kernelsearch collect" in done.stderr


def on_device(name):
    """A GPU of this name, as far as the record is concerned."""
    return mock.patch.multiple(torch.cuda, is_available=lambda: True, get_device_name=lambda *device: name)


def test_kernels_of_the_record_come_into_a_model(searched):
    folder, _ = searched
    with on_device("h100"), mock.patch.object(model_options, "_list_faster", lambda choice: {"timed:0": "the seed"}):
        kernels = model_options.load_kernels(str(folder / "m.db"), Evidence.ESTIMATED, pytest.fail)
    (kernel,) = kernels.values()
    x, y = torch.randn(64, 96), torch.randn(64, 96)
    expected = torch.sigmoid(x) * y + torch.tanh(y).sum(-1, keepdim=True)
    with pytest.warns(UserWarning, match="nothing was verified on cpu"):  # a package's kernels run on a GPU
        assert torch.equal(kernel.operator(x, y), expected)
    assert kernel.judged == {(((64, 96), (96, 1)), ((64, 96), (96, 1)))}
    assert PlacedKernels(kernels).make_pass().uuid() != PlacedKernels({}).make_pass().uuid()


@pytest.mark.parametrize(
    ("device", "version", "said"),
    [
        (None, None, "there is no GPU here"),
        ("A100", None, "it has no kernel that is faster on A100"),
        ("h100", "1.0", "its regions are of torch"),
    ],
)
def test_what_does_not_fit_is_one_line_and_the_model_runs(searched, capsys, device, version, said):
    folder, _ = searched
    model_options._TOLD.clear()
    there = on_device(device) if device else mock.patch.object(torch.cuda, "is_available", lambda: False)
    with there, mock.patch.object(model_options, "VERSION", version or model_options.VERSION):
        found = [model_options.options(str(folder / "m.db"), "estimated") for _ in range(2)]
    assert found == [{}, {}]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 and said in lines[0] and "the model runs as torch.compile makes it" in lines[0]


def test_the_back_end_is_inductor_with_the_options():
    torch._dynamo.reset()
    block, x = Block(), torch.randn(8, 64)
    seen = []

    def options(db):
        seen.append(db)
        return {"post_grad_custom_pre_pass": RegionPass(lambda module, tasks: seen.extend(tasks))}

    with mock.patch.object(model_options, "options", options), torch.no_grad():
        compiled = torch.compile(block, backend=model_options.kernelsearch, options={"db": "x.db"})
        torch.testing.assert_close(compiled(x), block(x))
    assert seen[0] == "x.db" and len(seen) > 1


def test_apply_compares_values_without_a_gpu(searched):
    folder, _ = searched
    command = [sys.executable, "-m", "kernelsearch", "apply", "gate.py", "--db", "m.db"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "results, a loss among them, differ from eager by 0.0e+00 with kernels" in done.stdout
    assert "no GPU here: 1 regions ran as operators, nothing was timed" in done.stdout


def test_a_kernel_that_is_wrong_in_place_is_told_apart():
    one, two = [torch.ones(4), torch.tensor(2)], [torch.ones(4) * 1.5, torch.tensor(2)]
    assert apply._distance(one, one) == 0 and apply._distance(two, one) == pytest.approx(0.5)
    assert apply._distance([torch.ones(4), torch.tensor(3)], one) == float("inf")
    assert apply._distance([torch.full((4,), torch.nan), torch.tensor(2)], one) == 1
