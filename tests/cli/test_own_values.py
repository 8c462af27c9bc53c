"""Without a GPU too a kernel is judged on values like the task's own, where those are unlike all others."""

import pytest

TASK = """
import torch, triton, triton.language as tl

def reference(x):
    return torch.nn.functional.silu(x)

def get_inputs(rows=4096, cols=4096):
    return [torch.randn(rows, cols)SHIFT]

TEST_SHAPES = [dict(rows=37, cols=37)]

@triton.jit
def silu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    y = x / (1.0 + tl.exp(-x))
    tl.store(y_ptr + at, y, mask=at < n)

def silu(x):
    y = torch.empty_like(x)
    silu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""
WRONG = "tl.where(x < -17.0, 0.0, y)"


@pytest.mark.slow
@pytest.mark.parametrize("shift", ["", " - 20.0"])
def test_values_that_no_regime_has_are_drawn_as_the_task_does(run, tmp_path, shift):
    task = TASK.replace("SHIFT", shift)
    (tmp_path / "silu.py").write_text(task)
    right = run("verify", "silu.py").json
    assert right["verdict"] == "accept", right["reason"]
    assert ("own" in right["detail"]["judged"]["regimes"]) is bool(shift)
    kernel = task[task.index("@triton") : task.index("def silu(x)")].replace("at, y, mask", f"at, {WRONG}, mask")
    (tmp_path / "mine.py").write_text(f"import triton\nimport triton.language as tl\n\n\n{kernel}")
    if shift:
        wrong = run("verify", "silu.py", "mine.py").json
        assert wrong["verdict"] == "reject-wrong" and wrong["detail"]["regime"] in ("own", "shifted")
