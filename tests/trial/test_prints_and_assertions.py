"""What a kernel prints and asserts while it is written does not disturb its trial."""

import pytest

TASK = """
import torch, triton, triton.language as tl

@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    tl.static_print("block", BLOCK, x_ptr.dtype)
    tl.static_assert(BLOCK > 1, "too small")
    tl.static_assert(BLOCK % 2 == 0)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.device_assert(at >= 0, "negative")
    tl.device_assert(n > 0)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.device_print("x", x, n)
    print("n", n)
    assert BLOCK > 1, "plain"
    tl.store(y_ptr + at, x * 2, mask=at < n)

def scale(x):
    y = torch.empty_like(x)
    scale_kernel[lambda m: (triton.cdiv(x.numel(), m["BLOCK"]),)](x, y, x.numel(), BLOCK=64)
    return y

def reference(x): return x * 2
def get_inputs(rows=32, cols=100, dtype=torch.bfloat16): return [torch.randn(rows, cols, dtype=dtype)]
TEST_SHAPES = [dict(rows=14, cols=50), dict(rows=3, cols=5)]  # each program prints
"""


@pytest.mark.slow
def test_a_task_full_of_them_is_judged_and_searched(run, tmp_path):
    (tmp_path / "scale.py").write_text(TASK)
    done = run("verify", "scale.py")
    assert done.json["verdict"] == "accept", done.out
    searched = run("optimize", "scale.py", "--trials", 3)
    assert searched.code == 0 and "3 accepted" in searched.err, searched.err
    assert "[" not in done.err and "block 64" not in searched.err


def test_a_static_assertion_that_fails_is_said(run, tmp_path):
    (tmp_path / "scale.py").write_text(TASK.replace('BLOCK > 1, "too small"', 'BLOCK > 100, "too small"'))
    done = run("verify", "scale.py").json
    assert done["verdict"] in ("crash", "reject-compile") and "too small" in done["reason"]
