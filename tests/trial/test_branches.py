"""Branches that the task's own inputs do not run: inputs are drawn that run them, and what still no case ran is named."""

import pytest

TASK = """import torch, triton, triton.language as tl

def reference(x, late):
    return torch.where(late[:, None], x.abs(), -x)
def get_inputs(rows=40, cols=48):
    return [torch.randn(rows, cols), torch.zeros(rows, dtype=torch.bool)]
TEST_SHAPES = [dict(rows=5, cols=9)]

@triton.jit
def sign_kernel(x_ptr, late_ptr, y_ptr, cols, BLOCK: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * cols + c, mask=c < cols, other=0.0)
    y = -x
    if tl.load(late_ptr + row):
        y = tl.abs(x)
    tl.store(y_ptr + row * cols + c, y, mask=c < cols)

def sign(x, late):
    y = torch.empty_like(x)
    sign_kernel[(x.shape[0],)](x, late, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""
HEAD = "import triton\nimport triton.language as tl\n\n\n"
KERNEL = HEAD + TASK[TASK.index("@triton.jit") : TASK.index("def sign(")]
BRANCH = "    if tl.load(late_ptr + row):\n        y = tl.abs(x)\n"


@pytest.mark.parametrize("instead", ["    if tl.load(late_ptr + row):\n        y = x * 0.0\n", ""])
def test_a_flag_that_the_task_never_sets_is_set(run, tmp_path, instead):
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "kernel.py").write_text(KERNEL.replace(BRANCH, instead))
    done = run("verify", "task.py", "kernel.py")
    assert done.code == 1 and done.json["verdict"] == "reject-wrong" and done.json["detail"]["regime"] == "flagged"
