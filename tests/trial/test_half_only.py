"""Launchers that take 16-bit floats only are judged on these."""

import pytest

TASK = """
import torch, triton, triton.language as tl

DTYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}

def reference(x):
    return torch.softmax(x, -1)

def get_inputs(rows=512, cols=256, dtype=torch.bfloat16):
    return [torch.randn(rows, cols, dtype=dtype)]

TEST_SHAPES = [dict(rows=3, cols=12), dict(rows=5, cols=100, dtype=torch.float16)]

@triton.jit
def soft_kernel(x_ptr, y_ptr, n, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * n + at, (e / tl.sum(e, 0)).to(DTYPE), mask=at < n)

def soft(x):
    CHECK
    y = torch.empty_like(x)
    dtype = DTYPES.get(x.dtype, tl.float32)
    soft_kernel[(x.shape[0],)](x, y, x.shape[1], dtype, BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""
CHECKS = {
    "an assertion without words": "assert x.dtype in DTYPES",
    "a table without float32": "DTYPES[x.dtype]",
    "an error of its own": "if x.dtype == torch.float32: raise NotImplementedError('16 bits only')",
}


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_it_is_judged_on_sixteen_bits(run, tmp_path, check):
    (tmp_path / "soft.py").write_text(TASK.replace("CHECK", CHECKS[check]))
    assert run("verify", "soft.py").json["verdict"] == "accept"


def test_a_wrong_kernel_is_still_seen(run, tmp_path):
    text = TASK.replace("CHECK", "assert x.dtype in DTYPES")
    text = text.replace("tl.sum(e, 0))", "tl.sum(e, 0) / 2)")  # half of it, at every shape and seed
    (tmp_path / "soft.py").write_text(text)
    done = run("verify", "soft.py").json
    assert done["verdict"] == "reject-wrong" and done["error_ratio"] > 2
