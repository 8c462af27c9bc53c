"""Mish, x * tanh(softplus(x)), element by element."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def reference(x):
    return F.mish(x)


def get_inputs(n=2**27, dtype=torch.float32):
    return [torch.randn(n, dtype=dtype)]


TEST_SHAPES = [dict(n=1000), dict(n=257, dtype=torch.float16), dict(n=1)]
SPACE = {"BLOCK": [256, 512, 1024, 2048, 4096], "num_warps": [1, 2, 4, 8]}


@triton.jit
def mish_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)
    e = tl.exp(tl.minimum(x, 20.0))
    part = e * (e + 2.0)
    y = x * part / (part + 2.0)
    tl.store(y_ptr + at, tl.where(x > 20.0, x, y).to(y_ptr.dtype.element_ty), mask=mask)


def mish(x):
    y = torch.empty_like(x)
    n = x.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    mish_kernel[grid](x, y, n, BLOCK=1024, num_warps=4)
    return y
