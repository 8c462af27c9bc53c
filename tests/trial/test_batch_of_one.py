"""A range whose first shape has one row, as serving has: the kernel is judged at several rows all the same."""

import pytest

from kernelsearch.core.types import Word
from kernelsearch.tasks.load import load
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.referee import verify_text

TASK = """
import torch, triton, triton.language as tl

@triton.jit
def add_kernel(x_ptr, x_row, y_ptr, y_row, at_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_row + c, mask=c < cols)
    y = tl.load(y_ptr + tl.load(at_ptr + row) * y_row + c, mask=c < cols)
    tl.store(out_ptr + row * cols + c, x + y, mask=c < cols)

def add(x, y, at):
    out = torch.empty(x.shape, device=x.device)
    add_kernel[(x.shape[0],)](x, x.stride(0), y, y.stride(0), at, out, x.shape[1],
                              BLOCK=triton.next_power_of_2(x.shape[1]))
    return out

def reference(x, y, at): return x + y[at]

def get_inputs(rows=64, cols=256, gap=0):
    return [torch.randn(rows, cols + gap)[:, :cols], torch.randn(rows, cols + gap)[:, :cols], torch.randperm(rows)]

SHAPES = [dict(rows=1, cols=256), dict(rows=16, cols=256), dict(rows=300, cols=512, gap=64)]
"""
"""At one row `at` holds zeros alone; at 300 rows the two inputs have the same gap between rows."""


@pytest.fixture
def path(tmp_path):
    (tmp_path / "rows.py").write_text(TASK)
    return tmp_path / "rows.py"


def test_made_shapes_have_several_rows(path):
    assert all(params["rows"] > 2 for _, params in load(path).test_shapes)


def test_the_tasks_own_kernel_is_right_and_one_that_takes_the_other_inputs_rows_is_not(path):
    with Bench.open(path, "h100", compile_workers=1) as bench:
        seed = bench.seed.code
        assert verify_text(bench, seed).accepted
        verdict = verify_text(bench, seed.replace("* y_row", "* x_row"))
        assert verdict.word is Word.WRONG and "padded rows" in verdict.reason
        verdict = verify_text(bench, seed.replace("row * x_row", "row * y_row"))
        assert verdict.word is Word.MEMORY and "'x_ptr'" in verdict.reason
