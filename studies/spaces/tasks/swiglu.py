"""SwiGLU, silu(a) * b: a program walks over TILES blocks that lie next to each other."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def reference(a, b):
    return F.silu(a) * b


def get_inputs(rows=8192, cols=14336, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype), torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=8192, cols=14336, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(rows=16, cols=1008, dtype=torch.bfloat16), dict(rows=48, cols=272, dtype=torch.bfloat16)]
SPACE = {
    "BLOCK": [256, 512, 1024, 2048, 4096, 8192],
    "TILES": [1, 2, 4, 8],
    "STAGES": [1, 2, 3],
    "num_warps": [1, 2, 4, 8],
}


def bytes_moved(rows, cols, dtype):
    return 3 * rows * cols * dtype.itemsize


@triton.jit
def swiglu_kernel(a_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr, TILES: tl.constexpr, STAGES: tl.constexpr):
    base = tl.program_id(0) * (BLOCK * TILES)
    for tile in tl.range(0, TILES, num_stages=STAGES):
        offsets = base + tile * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        a = tl.load(a_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        y = a / (1.0 + tl.exp(-a)) * b
        tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def swiglu(a, b):
    a, b = a.contiguous(), b.contiguous()
    y = torch.empty_like(a)
    n = a.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"] * meta["TILES"]),)
    swiglu_kernel[grid](a, b, y, n, BLOCK=1024, TILES=1, STAGES=1, num_warps=4)
    return y
