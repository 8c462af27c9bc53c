"""A model's regions are searched, its kernels come into it as options, and `apply` compares values without a GPU."""

import subprocess
import sys
from functools import partial
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from click.testing import CliRunner
from small_step import Block
from torch._higher_order_ops.triton_kernel_wrap import triton_kernel_wrapper_functional
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelsearch.cli import main
from kernelsearch.core.types import Evidence
from kernelsearch.graphs import apply, collect, costs, model_options, schedule
from kernelsearch.graphs.replace import PlacedKernels
from kernelsearch.graphs.schedule import RegionTurn
from kernelsearch.graphs.task_text import RegionTask
from kernelsearch.graphs.watch import RegionPass, WatchedGraph
from kernelsearch.measure.timing.paired_statistics import Interval
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


@pytest.mark.slow
def test_rounds_of_trials_go_to_a_region_until_they_gain_nothing(searched):
    folder, done = searched
    with Store.open(folder / "m.db", write=False) as store:
        (region,) = region_rows.load_regions(store)
        best = region_rows.find_best(store, f"region_{region}")
        assert best["trials"] >= 9 and len(store.load_runs()) == 1  # one run, which goes on
    assert f"region {region} (sigmoid mul tanh sum add): " in done.stderr
    assert region in done.stdout and "alone" in done.stdout


@pytest.mark.slow
def test_a_database_without_its_folder_of_regions_says_so_and_refuses_none(searched):
    folder, _ = searched
    (folder / "copied.db").write_bytes((folder / "m.db").read_bytes())
    done = CliRunner().invoke(main, ["optimize", "--hours", "1", "--db", str(folder / "copied.db")])
    assert done.exit_code == 2 and "copied_regions, which is not there: copy it with the database" in done.stderr
    with Store.open(folder / "copied.db", write=False) as store:
        assert not any(row["refusal"] for row in region_rows.load_regions(store).values())


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


@pytest.mark.slow
def test_kernels_of_the_record_come_into_a_model(searched):
    folder, _ = searched
    with (
        on_device("h100"),
        mock.patch.object(model_options, "list_faster", lambda choice: {"h100": {"timed:0": "the seed"}}),
    ):
        kernels = model_options.load_kernels(str(folder / "m.db"), Evidence.ESTIMATED, pytest.fail)
    (kernel,) = kernels.values()
    x, y = torch.randn(64, 96), torch.randn(64, 96)
    expected = torch.sigmoid(x) * y + torch.tanh(y).sum(-1, keepdim=True)
    with pytest.warns(UserWarning, match="nothing was verified on cpu"):  # a package's kernels run on a GPU
        assert torch.equal(kernel.operator(x, y), expected)
    assert kernel.judged == {(((64, 96), (96, 1)), ((64, 96), (96, 1)))}
    with on_device("h100"), FakeTensorMode():
        inputs = [torch.empty(64, 96, device="cuda") for _ in range(2)]
        traced = kernel.trace(inputs, (((64, 96), (96, 1)),))
        assert kernel.trace(inputs, (((64, 96), (1, 64)),)) is None  # its results lie otherwise
    assert traced.graph.find_nodes(op="call_function", target=triton_kernel_wrapper_functional)
    assert not any("kernelsearch" in str(node.target) for node in traced.graph.nodes)
    assert PlacedKernels(kernels).make_pass().uuid() != PlacedKernels({}).make_pass().uuid()


PACKAGED = """
import sys, warnings
from unittest import mock
import torch
from kernelsearch.core.types import Evidence
from kernelsearch.export.package import ExportOptions
from kernelsearch.graphs import model_package
found = {"h100": {"timed:0": "the seed"}}
with mock.patch.object(model_package, "list_faster", lambda choice: found):
    model_package.export_model(ExportOptions((), "made", "fast-gate", ("m.db",), evidence=Evidence.ESTIMATED))
"""

USED = """
import sys, warnings
from unittest import mock
import torch
sys.path.insert(0, "made")
import fast_gate
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    assert fast_gate.options() == {} and "there is no GPU here" in str(seen[0].message)
for device in ("A100", "h100"):
    there = dict(is_available=lambda: True, get_device_name=lambda *number: device)
    with mock.patch.multiple(torch.cuda, **there), warnings.catch_warnings(record=True) as seen:
        options = fast_gate.options()
        assert bool(options) == (device == "h100"), seen
def gate(x, y):
    return torch.sigmoid(x) * y + torch.tanh(y).sum(-1, keepdim=True)
x, y = torch.randn(64, 96), torch.randn(64, 96)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    torch.testing.assert_close(torch.compile(gate, options=options)(x, y), gate(x, y))
assert [w for w in seen if "nothing was verified on cpu" in str(w.message)]  # its kernels run on a GPU
assert not any(name.startswith("kernelsearch") for name in sys.modules)
"""


@pytest.mark.slow
def test_a_package_of_a_model_puts_its_kernels_there_without_us(searched):
    folder, _ = searched
    for code in (PACKAGED, USED):
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert "options=fast_gate.options())" in (folder / "made" / "README.md").read_text()


def test_a_model_without_faster_kernels_is_not_packaged(searched, tmp_path):
    folder, _ = searched
    for words, said in (
        (["--model"], "has a faster confirmed kernel: search them with"),
        ([], "name what to export"),
        (["--model", "--task", "gate"], "name what to export"),
    ):
        command = ["export", *words, "--db", str(folder / "m.db"), "--out", str(tmp_path / "x"), "--name", "fast-gate"]
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 2 and said in done.stderr, done.output


@pytest.mark.slow
def test_a_refused_placement_is_that_of_one_kernel(searched):
    folder, _ = searched
    loaded = []
    with on_device("h100"), Store.open(folder / "m.db") as store:
        (region,) = region_rows.load_regions(store)
        (use,) = region_rows.load_uses(store)
        own = {"region": region, "model": use["model"], "device": "h100", "used": 0, "reason": "no gain in place"}
        for kernel in ("the seed", "a better one"):
            with mock.patch.object(
                model_options, "list_faster", lambda choice, kernel=kernel: {"h100": {"timed:0": kernel}}
            ):
                (found,) = model_options.load_kernels(
                    str(folder / "m.db"), Evidence.ESTIMATED, print, placed=False
                ).values()
                if not loaded:
                    region_rows.add_placement(store, {**own, "kernel": found.identity})
                loaded.append(model_options.load_kernels(str(folder / "m.db"), Evidence.ESTIMATED, lambda line: None))
        store.database.execute("DELETE FROM placement")
    assert not loaded[0] and list(loaded[1]) == [region]


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


def test_without_a_database_the_model_runs_as_it_is_and_that_is_said(tmp_path, capsys):
    model_options._TOLD.clear()
    assert model_options.options(str(tmp_path / "none.db")) == {}
    assert "no database at" in (said := capsys.readouterr().err) and "kernelsearch collect" in said


def test_a_file_that_is_no_database_is_said_in_one_line_and_the_model_runs(tmp_path, capsys):
    model_options._TOLD.clear()
    (tmp_path / "junk.db").write_bytes(b"no database at all" * 99)
    assert model_options.options(str(tmp_path / "junk.db")) == {}
    (line,) = capsys.readouterr().err.splitlines()
    assert "junk.db is not a SQLite database" in line and "the model runs as torch.compile makes it" in line


def test_apply_without_a_database_names_the_command_that_makes_one(tmp_path):
    done = CliRunner().invoke(main, ["apply", "gate.py", "--db", str(tmp_path / "none.db")])
    assert done.exit_code == 2 and "`kernelsearch collect gate.py --db" in done.stderr and "optimize" not in done.stderr


def test_a_region_that_was_not_tried_has_no_gain(monkeypatch):
    tried, other = RegionTurn("a", "", "gate", 0.5, 0.5, 0.8, 9), RegionTurn("b", "", "norm", 0.1, 0.5)
    monkeypatch.setattr(schedule, "load_turns", lambda db: [tried, other])
    _, first, second = schedule.optimize_regions("m.db", 0.0, print, {}).splitlines()
    assert "1.25x" in first and "not tried" in second and "1x" not in second


def test_the_back_end_is_inductor_with_the_options():
    torch._dynamo.reset()
    block, x = Block(), torch.randn(8, 64)
    seen = []

    def make_options(db, least):
        seen.append(db)
        return {"post_grad_custom_pre_pass": RegionPass(lambda module, tasks: seen.extend(tasks))}

    with mock.patch.object(model_options, "_make_options", make_options), torch.no_grad():
        compiled = torch.compile(block, backend=model_options.kernelsearch, options={"db": "x.db"})
        torch.testing.assert_close(compiled(x), block(x))
    assert seen[0] == "x.db" and len(seen) > 1


@pytest.mark.slow
def test_apply_compares_values_without_a_gpu(searched):
    folder, _ = searched
    command = [sys.executable, "-m", "kernelsearch", "apply", "gate.py", "--db", "m.db"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = "results, a loss among them, differ from eager by 0.0e+00 with 1 region as operators, "
    assert said in done.stdout and "with kernels" not in done.stdout  # none ran
    assert "no GPU here: each region ran as an operator made of its own operations" in done.stdout
    assert "no kernel ran, and nothing was timed" in done.stdout


def test_a_kernel_that_is_wrong_in_place_is_told_apart():
    one = torch.ones(4)
    assert apply._distance(one, one) == 0 and apply._distance(one * 1.5, one) == pytest.approx(0.5)
    assert apply._distance(torch.tensor([1, 2, 3, 5]), torch.tensor([1, 2, 3, 4])) == 0.25
    assert apply._distance(torch.full((4,), torch.nan), one) == float("inf")
    assert apply._distance(torch.tensor([9.0, -torch.inf]), torch.tensor([1.0, -torch.inf])) == 8
    turned = torch.complex(one, one)
    assert apply._distance(turned * 1.25, turned) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("exact", "usual", "ours", "random", "wrong"),
    [
        (1.0, 1.0001, 1.0002, False, False),
        (1.0, 1.0001, 1.01, False, True),
        (1e-9, -2e-9, 4e-9, False, False),  # a gradient whose true value is 0: all three are noise
        (1e-9, -2e-9, 1e-3, False, True),
        (1.0, 7.0, 7.0001, True, False),  # other random numbers than eager's
        (1.0, 7.0, 2.0, True, True),
        (1.0, float("inf"), float("inf"), False, False),  # the compiled graph overflows, with us and without
        (1.0, float("inf"), 1.0, False, True),
    ],
)
def test_each_result_is_compared_with_what_the_model_itself_errs(exact, usual, ours, random, wrong):
    found = apply._compare_results(*(torch.tensor([n]) for n in (exact, usual, ours)), random)
    assert found.is_wrong == wrong and ("from torch.compile's" in found.describe()) == (found.usual is None)
    if random:  # a rounding of 16 bits more or less is no fault
        half = apply._compare_results(*(torch.tensor([n]).bfloat16() for n in (1.0, 7.0, 7.0 + 2**-5)), True)
        assert not half.is_wrong and half.ours > apply.LEAST_ERROR


def interval(low, high):
    return Interval((low * high) ** 0.5, low, high, 0.99, 40)


@pytest.mark.parametrize(
    ("gains", "error", "whole", "said"),
    [
        (
            {"a": (1.02, 1.03), "b": (0.99, 1.01)},
            1e-4,
            (1.01, 1.02),
            ["used", "a lost fusion", "1.015x [1.010, 1.020]"],
        ),
        ({"a": (1.02, 1.03), "b": (1.02, 1.03)}, 1e-4, (0.98, 1.01), ["nothing is used: together they gain nothing"]),
        (
            {"a": (1.02, 1.03), "b": (1.02, 1.03)},
            0.5,
            (1.01, 1.02),
            ["results differ from eager by 5.0e-01", "no kernel gains in"],
        ),
        ({"a": (0.98, 0.99), "b": (0.98, 0.99)}, 1e-4, (1.0, 1.0), ["no kernel gains in place"]),
    ],
)
def test_only_what_gains_in_place_is_used(tmp_path, gains, error, whole, said):
    """Without a GPU: the times and the errors are given, what is made of them is not."""
    tasks = [(None, SimpleNamespace(digest=digest)) for digest in gains]
    graph = SimpleNamespace(direction="forward", regions=tasks, run=None)
    kernels = {d: SimpleNamespace(region=d, identity=f"kernel of {d}") for d in gains}
    rows = [{"digest": d, "name": d, "torch": "2", "code": ""} for d in gains]
    model = {"name": "m.py", "device": "h100", "evidence": "measured", "torch": "2", "region_us": 50.0}
    model |= {"step_us": 100.0, "product_us": 50.0, "attention_us": 0.0}
    use = {
        "model": "m.py",
        "device": "h100",
        "direction": "forward",
        "sizes": {},
        "uses": 1,
        "bytes": 1,
        "least_us": 1.0,
    }
    with Store.open(tmp_path / "m.db") as store:
        region_rows.add_model(store, model, rows, [{**use, "region": d, "time_us": 25.0} for d in gains])
    placed = []

    def place(graphs, wanted, say):
        placed.append([k.region for k in wanted])
        return [apply.Call(graph, None)] if wanted else []

    def time_placed(calls):
        return interval(*(whole if len(placed) > len(gains) else gains[placed[-1][0]]))

    given = {"run_script": lambda *script: [graph], "load_kernels": lambda *record, **more: kernels, "_place": place}
    given |= {"_time": time_placed, "_find_error": lambda call: apply.Error(error, 1e-4)}
    with on_device("h100"), mock.patch.multiple(apply, **given):
        text = apply.apply("m.py", (), str(tmp_path / "m.db"), Evidence.MEASURED, print)
    assert all(line in text for line in said) and "25.0%" in text
    with Store.open(tmp_path / "m.db", write=False) as store:
        used = {p["region"] for p in region_rows.load_placements(store) if p["used"]}
    alone = {d for d, (low, _) in gains.items() if low > 1 and error < 0.1}
    assert used == (alone if whole[0] >= 1 else set())


def test_measured_times_of_regions_add_up_to_the_steps_fused_kernels():
    uses = [
        {"region": "a", "sizes": {}, "uses": 3, "least_us": 1.0},
        {"region": "b", "sizes": {}, "uses": 1, "least_us": 50.0},
    ]
    regions = {d: SimpleNamespace(digest=d) for d in "ab"}
    parts = {"step": 200.0, "fused": 40.0, "product": 100.0, "attention": 0.0}
    measured = {
        "measure_graph": lambda graph: parts,
        "measure_region": lambda task, sizes: {"a": 10.0, "b": 20.0}[task.digest],
    }
    with mock.patch.multiple(costs, **measured):
        total = collect._measure([SimpleNamespace(times=1)] * 2, regions, uses)
    assert total["step"] == 400 and total["product"] == 200
    assert [u["time_us"] for u in uses] == [10.0, 50.0]  # never below the floor; they fit into 80


def test_each_region_is_timed_as_torch_compiles_it_alone():
    """A region's function has no file, so that Dynamo takes all of them for one that changes."""
    text = "import torch\ndef reference(x):\n    return x.sin() * {}\ndef get_inputs():\n    return [torch.ones(3)]\n"
    tasks = [
        RegionTask(str(n), text.format(n), (), (), {}, ()) for n in range(2 * torch._dynamo.config.recompile_limit)
    ]
    compiled = []

    def take(call, inputs, flush):
        before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        call(*inputs[0])
        compiled.append(torch._dynamo.utils.counters["stats"]["unique_graphs"] - before)
        return SimpleNamespace(times_us=[1.0])

    eager = mock.patch("torch.compile", partial(torch.compile, backend="eager"))
    old = torch._dynamo.config.patch(wrap_top_frame=True)  # torch before 2.13 does so where a function has no file
    with mock.patch.multiple(costs, take_samples=take, Flush=lambda: None), eager, old:
        assert [costs.measure_region(task, {}, "cpu") for task in tasks] == [1.0] * len(tasks)
    assert compiled == [1] * len(tasks)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("triton_red_fused_add_mean_mul_0", "fused"),
        ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNN", "product"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32", "product"),
        ("triton_tem_fused_mm_3", "product"),
        ("void pytorch_flash::flash_fwd_kernel<...>", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "attention"),
        ("Memcpy DtoD (Device -> Device)", "other"),
    ],
)
def test_kernels_are_told_apart_by_their_names(name, kind):
    assert costs.name_kind(name) == kind


def test_inputs_that_a_graph_changes_keep_their_strides():
    graph = WatchedGraph("forward", None, (), {}, {}, None, inputs=[torch.randn(4, 16)[:, :8]])
    graph.__class__ = type("Changing", (WatchedGraph,), {"mutates": True})
    (copied,) = graph.copy_inputs()
    assert copied.stride() == (16, 1) and copied.data_ptr() != graph.inputs[0].data_ptr()
