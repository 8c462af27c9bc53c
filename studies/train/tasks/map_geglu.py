"""The first half of each row times GELU of the second."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def reference(x):
    a, b = x.chunk(2, dim=-1)
    return a * F.gelu(b)


def get_inputs(rows=8192, cols=8192, dtype=torch.float32):
    return [torch.randn(rows, 2 * cols, dtype=dtype)]


SHAPES = [dict(rows=8192, cols=8192, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(rows=3, cols=1000), dict(rows=2, cols=100, dtype=torch.bfloat16), dict(rows=1, cols=1)]
SPACE = {"BLOCK": [256, 512, 1024, 2048, 4096], "num_warps": [1, 2, 4, 8]}


@triton.jit
def geglu_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n_cols
    a = tl.load(x_ptr + row * 2 * n_cols + at, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + row * 2 * n_cols + n_cols + at, mask=mask, other=0.0).to(tl.float32)
    gelu = 0.5 * b * (1.0 + tl.erf(b * 0.7071067811865476))
    tl.store(y_ptr + row * n_cols + at, (a * gelu).to(y_ptr.dtype.element_ty), mask=mask)


def geglu(x):
    rows, cols = x.shape[0], x.shape[1] // 2
    y = torch.empty(rows, cols, device=x.device, dtype=x.dtype)
    grid = lambda meta: (rows, triton.cdiv(cols, meta["BLOCK"]))
    geglu_kernel[grid](x, y, cols, BLOCK=512, num_warps=4)
    return y
