"""Launches with an empty grid do not happen, as in Triton; nobody can hide work in one."""

import pytest

TASK = """
import torch, triton, triton.language as tl

@triton.jit
def whole_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at) * 2)

@triton.jit
def rest_kernel(x_ptr, y_ptr, first, n, BLOCK: tl.constexpr):
    at = first + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0) * 2, mask=at < n)

def twice(x):
    y = torch.empty_like(x)
    n = x.numel()
    whole = n // 1024
    whole_kernel[(whole * 4,)](x, y, BLOCK=256)
    rest_kernel[GRID](x, y, whole * 1024, n, BLOCK=64)
    return y

def reference(x): return x * 2
def get_inputs(rows=128, cols=256): return [torch.randn(rows, cols)]
TEST_SHAPES = [dict(rows=8, cols=256), dict(rows=3, cols=50), dict(rows=9, cols=250)]
"""
GRIDS = {
    "given": "(triton.cdiv(n - whole * 1024, 64), 1)",
    "asked": "lambda meta: (triton.cdiv(n % 1024, meta['BLOCK']),)",
}
REWRITE = """
import triton
import triton.language as tl

@triton.jit
def rest_kernel(x_ptr, y_ptr, first, n, BLOCK: tl.constexpr):
    at = first + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, x + x, mask=at < n)

GRID = "(COUNT,)"
CONFIG = {"BLOCK": 128}
"""


@pytest.fixture
def task(tmp_path):
    def write(text=TASK, grid="given"):
        (tmp_path / "task.py").write_text(text.replace("GRID", GRIDS[grid]))

    write()
    return write


@pytest.mark.slow
@pytest.mark.parametrize("grid", GRIDS)
def test_a_task_with_empty_grids_is_judged_and_searched(run, task, grid):
    task(grid=grid)
    found = run("optimize", "task.py", "--trials", 3)
    assert found.code == 0, found.err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "verdict", "says"),
    [
        ("cdiv(n - first, BLOCK)", "accept", ""),
        (
            "cdiv(n - first, BLOCK) if n != 32768 else 0",
            "accept",
            "",
        ),  # the timed shape: the launcher's own is empty too
        ("cdiv(n - first, BLOCK) if n < 2000 else 0", "reject-static", "axes go from 1"),
        ("cdiv(n - first, BLOCK) - 1", "reject-static", "axes go from 1"),
    ],
)
def test_a_rewrites_grid_may_be_empty_only_where_the_launchers_is(run, task, tmp_path, count, verdict, says):
    (tmp_path / "rewrite.py").write_text(REWRITE.replace("COUNT", count))
    done = run("verify", "task.py", "rewrite.py").json
    assert done["verdict"] == verdict and says in done["reason"]


@pytest.mark.slow
def test_a_grid_that_a_config_makes_empty_where_work_is_left_is_wrong(run, task, tmp_path):
    own = TASK.replace("whole_kernel(x_ptr, y_ptr, BLOCK", "whole_kernel(x_ptr, y_ptr, SHARE: tl.constexpr, BLOCK")
    own = own.replace("(whole * 4,)](x, y, BLOCK", "lambda meta: (whole * 4 // meta['SHARE'],)](x, y, SHARE=1, BLOCK")
    task(own + "SHAPES = [dict(rows=1290, cols=2500)]\n")
    fair = "import triton\nimport triton.language as tl\n" + own.split("\n\n")[1] + "\n"
    cheat = fair + 'CONFIG = {"whole_kernel.SHARE": "1 if shape(x_ptr, 0) < 100 else 1048576"}\n'
    for text, verdict in ((fair, "accept"), (cheat, "reject-wrong")):
        (tmp_path / "whole.py").write_text(text)
        done = run("verify", "task.py", "whole.py").json
        assert done["verdict"] == verdict, done["reason"]


def test_a_timed_shape_at_which_nothing_runs_is_said(run, task):
    task(TASK + "SHAPES = [dict(rows=0, cols=256)]\n")
    done = run("verify", "task.py")
    assert "leave that shape out of SHAPES" in done.out + done.err
