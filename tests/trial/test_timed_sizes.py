"""The task's own kernel must be right at a timed size, although no timed shape is run without a GPU."""

import pytest

TASK = """
import torch, triton, triton.language as tl

def reference(x):
    return x.sum(-1)

def get_inputs(rows=4096, cols=5120):
    return [torch.randn(rows, cols)]

@triton.jit
def sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
        total = SUM
    tl.store(y_ptr + row, tl.sum(total, 0))

def row_sum(x):
    y = torch.empty(x.shape[0], device=x.device)
    block = min(4096, triton.next_power_of_2(x.shape[1]))
    sum_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=block)
    return y
"""


@pytest.mark.parametrize("total, empty, word", [
    ("total + x", "empty", "accept"), ("x", "empty", "reject-wrong"),
    ("total + x", "zeros", "accept"),  # a few programs run there: what the others would write is zero
])  # fmt: skip
def test_a_second_turn_that_no_small_size_takes_is_judged(run, tmp_path, total, empty, word):
    (tmp_path / "sums.py").write_text(TASK.replace("SUM", total).replace("torch.empty", f"torch.{empty}"))
    told = run("verify", "sums.py").json
    assert told["verdict"] == word
    if word != "accept":
        assert "5120" in told["detail"]["label"] and told["detail"]["shape"] == "timed:0"
