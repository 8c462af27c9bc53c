"""Kernels with `@triton.heuristics`: a package evaluates them as Triton does, from the arguments of each call."""

import pytest
from gated_record import run_own_tests, run_python, write_seed_run
from test_export_forms import HEAD, exported

from kernelsearch.core.types import Evidence
from kernelsearch.export import ExportError
from kernelsearch.export.examine import examine
from kernelsearch.export.package import ExportOptions, export

RULED = (
    HEAD
    + """
UNIT = 2

def is_even(args):
    return args["n_cols"] % (UNIT * args["BLOCK"] // 2) == 0

def reference(x, scale=2.0):
    return x * scale

def get_inputs(rows=8, cols=64):
    return [torch.randn(rows, cols), 2.0]

SHAPES = [dict(rows=64, cols=128)]
TEST_SHAPES = [dict(rows=5, cols=33), dict(rows=3, cols=64)]
SPACE = {"BLOCK": [32, 64], "num_warps": [1, 2]}

@triton.heuristics({"EVEN": is_even})
@triton.heuristics(values={
    "TWICE": lambda args: 2 if args["EVEN"] else 1,  # a rule that reads another's value
})
@triton.jit
def scale_kernel(x_ptr, y_ptr, scale, n_cols, BLOCK: tl.constexpr, EVEN: tl.constexpr, TWICE: tl.constexpr):
    row = tl.program_id(0) * n_cols
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        if EVEN:
            x = tl.load(x_ptr + row + cols) * (scale / 2)
            tl.store(y_ptr + row + cols, x * TWICE)
        else:
            x = tl.load(x_ptr + row + cols, mask=cols < n_cols) * scale
            tl.store(y_ptr + row + cols, x * TWICE, mask=cols < n_cols)

def ruled(x, scale=2.0):
    y = torch.empty_like(x)
    scale_kernel[(x.shape[0],)](x, y, scale, x.shape[1], BLOCK=32)
    return y
"""
)

RUN = """
import contextlib, torch
from importlib import import_module
torch.cuda.current_device = lambda: None
torch.cuda.device = lambda device: contextlib.nullcontext()
dispatch = import_module("form_ruled")._dispatch
(task,) = dispatch.TASKS.values()
table = next(iter(task.tables.values())).entries
seen = []
for name, launch in task.launches[table[0].kernel].items():
    def spy(tuned, grid, *args, launch=launch, **options):
        seen.append((options["EVEN"], options["TWICE"]))
        return launch(tuned, grid, *args, **options)
    task.launches[table[0].kernel][name] = spy
task.choose = lambda inputs: task.take(table[0])
for case in task.cases:
    inputs = task.inputs(case, seed=1)
    with torch.no_grad():
        torch.testing.assert_close(task.public(*inputs, fallback=False), task.reference(*inputs))
print(seen, "kernels ran")
"""


def test_rules_are_evaluated_from_the_arguments_of_each_call(tmp_path):
    done = exported(tmp_path, "ruled", RULED)
    ran = run_python(RUN, done.out, TRITON_INTERPRET="1")
    assert ran.stdout == "[(True, 2), (False, 1), (True, 2)] kernels ran\n", ran.stderr[-3000:]
    task = (done.out / "form_ruled" / "_ruled" / "task.py").read_text()
    assert "def is_even(args)" in task and "UNIT = 2" in task and "@triton" not in task
    own = run_own_tests(done.out, "form_ruled")
    assert own.returncode == 0, own.stdout[-3000:]


def with_config(folder, config, **options):
    """An export of the task whose seed was fastest with this config."""
    path = folder / "ruled.py"
    path.write_text(RULED)
    facts = examine(path).facts
    object.__setattr__(facts, "config", config)
    write_seed_run(folder / "ruled.db", facts, (10.0,), Evidence.ESTIMATED, "h100")
    whole = {"tasks": ("ruled",), "out": str(folder / "out"), "name": "form-ruled", "dbs": (str(folder / "ruled.db"),),
             "evidence": Evidence.ESTIMATED, **options}  # fmt: skip
    return export(ExportOptions(**whole))


def test_rules_see_the_configs_values(tmp_path):
    done = with_config(tmp_path, {"BLOCK": 64, "num_warps": 2})
    ran = run_python(RUN, done.out, TRITON_INTERPRET="1")
    assert ran.stdout == "[(True, 2), (False, 1), (True, 2)] kernels ran\n", ran.stderr[-3000:]
    (tmp_path / "wide").mkdir()
    done = with_config(tmp_path / "wide", {"BLOCK": 128, "num_warps": 2})
    ran = run_python(RUN, done.out, TRITON_INTERPRET="1")
    assert ran.stdout == "[(True, 2), (False, 1), (False, 1)] kernels ran\n", ran.stderr[-3000:]


@pytest.mark.parametrize(
    ("text", "config", "said"),
    [
        (RULED, {"BLOCK": "next_power_of_2(n_cols)"}, "a config gives BLOCK as an expression"),
        (RULED.replace("@triton.heuristics({", "RULE = triton.heuristics({").replace("is_even})", "is_even})\n\n@RULE"),
         {}, "write @triton.heuristics with its values above the kernel"),
    ],
)  # fmt: skip
def test_rules_that_cannot_be_shipped_say_why(tmp_path, monkeypatch, text, config, said):
    monkeypatch.setitem(globals(), "RULED", text)
    with pytest.raises(ExportError, match=said):
        with_config(tmp_path, {"BLOCK": 64, "num_warps": 2, **config})
