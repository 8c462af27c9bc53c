"""Kernels must be right at timed sizes without a GPU too, whether they run there whole or not."""

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


LISTED = """
import torch, triton, triton.language as tl

SHAPES = [dict(rows=33, cols=1000), dict(rows=2048, cols=48), dict(rows=1, cols=4000), dict(rows=2**14, cols=2**14)]

def reference(x):
    return x * 2

def get_inputs(rows, cols):
    return [torch.randn(rows, cols)]

def double(x):
    y = torch.empty_like(x)
    double_kernel[(x.shape[0],)](x, y, *x.shape, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y

@triton.jit
def double_kernel(x_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * cols + at, mask=at < cols)
    tl.store(y_ptr + tl.program_id(0) * cols + at, x * FACTOR, mask=at < cols)
"""


@pytest.mark.parametrize("where", ["", "(rows == 33) & (cols == 1000)", "(rows == 2048) & (cols == 48)"])
def test_a_kernel_that_is_wrong_at_one_listed_shape_is_refused(run, tmp_path, where):
    (tmp_path / "double.py").write_text(LISTED.replace("FACTOR", "2"))
    head = "import triton\nimport triton.language as tl\n\n\n"
    factor = f"tl.where({where}, 0, 2)" if where else "2"
    (tmp_path / "new.py").write_text(head + LISTED[LISTED.index("@triton.jit") :].replace("FACTOR", factor))
    told = run("verify", "double.py", "new.py")
    assert told.json["verdict"] == ("reject-wrong" if where else "accept")
    assert where or ("3 timed shapes (" in told.err and "1 timed shape (rows=16384 cols=16384), too large" in told.err)


def test_a_tail_of_one_element_that_a_loop_leaves_out_is_refused(run, tmp_path):
    total = KERNEL.replace("SUM", "total + x")
    (tmp_path / "sums.py").write_text(total + RETURNED.format("empty").replace("400", "4"))
    head = "import triton\nimport triton.language as tl\n\n\n"
    wrong = total[total.index("@triton.jit") : total.index("def launch")].replace(
        "range(0, n, BLOCK)", "range(0, n - 1, BLOCK)"
    )
    (tmp_path / "new.py").write_text(head + wrong)
    assert run("verify", "sums.py", "new.py").json["verdict"] == "reject-wrong"
