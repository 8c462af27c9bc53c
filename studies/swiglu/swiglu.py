"""SwiGLU, silu(a) * b, element by element over contiguous tensors."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def reference(a, b):
    return F.silu(a) * b


def get_inputs(rows=16384, cols=14336, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype), torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=16384, cols=14336, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(rows=7, cols=1000), dict(rows=3, cols=257), dict(rows=1, cols=1)]
SPACE = {"BLOCK": [256, 512, 1024, 2048, 4096, 8192], "num_warps": [1, 2, 4, 8, 16]}


def liger(a, b):
    from liger_kernel.transformers.functional import liger_swiglu  # where it is not installed, reports say so

    return liger_swiglu(a, b)


BASELINES = {"liger": liger}


def bytes_moved(rows, cols, dtype):
    return 3 * rows * cols * dtype.itemsize


def flops(rows, cols, dtype):
    return 5 * rows * cols  # negate, exponential, add, divide, multiply


@triton.jit
def swiglu_kernel(a_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(a_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    silu = a / (1.0 + tl.exp(-a))
    y = silu * b
    tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def swiglu(a, b):
    y = torch.empty_like(a)
    n = a.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)
    swiglu_kernel[grid](a, b, y, n, BLOCK=1024, num_warps=4)
    return y
