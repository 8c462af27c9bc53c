"""Tasks whose outputs and launches depend on the values of the inputs, or on what a kernel computes."""

import pytest

HEAD = """
import torch, triton, triton.language as tl

def reference(x): return x[x > 0] * 2
def get_inputs(rows=128, cols=256): return [torch.randn(rows, cols)]

@triton.jit
def gather_kernel(x_ptr, at_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(at_ptr + i, mask=i < n, other=0)
    tl.store(y_ptr + i, tl.load(x_ptr + at, mask=i < n, other=0.0) * 2, mask=i < n)
"""
TASKS = {
    "sizes from the inputs": """
def positive(x):
    at = torch.nonzero(x.view(-1) > 0).view(-1)
    y = torch.empty(at.numel(), dtype=x.dtype, device=x.device)
    gather_kernel[lambda m: (triton.cdiv(at.numel(), m["BLOCK"]),)](x, at, y, at.numel(), BLOCK=256)
    return y
""",
    "sizes from a kernel": """
@triton.jit
def mark_kernel(x_ptr, mark_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(mark_ptr + i, (x > 0).to(tl.int32), mask=i < n)

def positive(x):
    marks = torch.empty(x.numel(), dtype=torch.int32, device=x.device)
    mark_kernel[lambda m: (triton.cdiv(x.numel(), m["BLOCK"]),)](x, marks, x.numel(), BLOCK=256)
    at = torch.nonzero(marks).view(-1)
    y = torch.empty(int(marks.sum()), dtype=x.dtype, device=x.device)
    gather_kernel[lambda m: (triton.cdiv(at.numel(), m["BLOCK"]),)](x, at, y, at.numel(), BLOCK=256)
    return y
""",
}


@pytest.mark.parametrize("name", TASKS)
def test_it_is_judged_and_searched(run, tmp_path, name):
    (tmp_path / "task.py").write_text(HEAD + TASKS[name])
    done = run("verify", "task.py")
    assert done.json["verdict"] == "accept", done.out
    searched = run("optimize", "task.py", "--trials", 3)
    assert searched.code == 0, searched.err
    assert ("the grid of gather_kernel is empty" in searched.err) is (name == "sizes from a kernel")


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(
    "change", [("return y\n", "return y[:-1]\n"), ("return y\n", "return torch.cat([y, y[:1]])\n")]
)
def test_another_size_is_still_seen(run, tmp_path, name, change):
    (tmp_path / "task.py").write_text(HEAD + TASKS[name].replace(*change))
    done = run("verify", "task.py")
    assert done.code == 1 and "shape" in done.json["reason"]


def test_another_dtype_or_rank_is_still_seen(run, tmp_path):
    for change in ("return y.double()\n", "return y[None]\n"):
        (tmp_path / "task.py").write_text(HEAD + TASKS["sizes from a kernel"].replace("return y\n", change))
        assert "from the reference, but" in run("verify", "task.py").err
