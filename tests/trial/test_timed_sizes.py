"""The task's own kernel must be right at a timed size, although no timed shape is run without a GPU."""

import pytest

KERNEL = """
import torch, triton, triton.language as tl

@triton.jit
def sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
        total = SUM
    tl.store(y_ptr + row, tl.sum(total, 0))

def launch(x, y):
    block = min(4096, triton.next_power_of_2(x.shape[1]))
    sum_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=block)
"""
RETURNED = """
def reference(x):
    return x.sum(-1)

def get_inputs(rows=400, cols=5120):
    return [torch.randn(rows, cols)]

def row_sum(x):
    y = torch.{}(x.shape[0], device=x.device)
    launch(x, y)
    return y
"""
GIVEN = """
MUTATES = ("y",)
LAUNCHER = "launch"

def reference(x, y):
    y.copy_(x.sum(-1))

def get_inputs(rows=400, cols=5120):
    return [torch.randn(rows, cols), torch.zeros(rows)]
"""


@pytest.mark.slow
@pytest.mark.parametrize("total, word", [("total + x", "accept"), ("x", "reject-wrong")])
@pytest.mark.parametrize(
    "task", [RETURNED.format("empty"), RETURNED.format("zeros"), GIVEN], ids=["empty", "zeros", "given"]
)
def test_a_second_turn_that_no_small_size_takes_is_judged(run, tmp_path, task, total, word):
    """A few programs run there: what the others would write is no answer, whatever the output held before."""
    (tmp_path / "sums.py").write_text(KERNEL.replace("SUM", total) + task)
    told = run("verify", "sums.py").json
    assert told["verdict"] == word
    if word != "accept":
        assert "5120" in told["detail"]["label"]
