"""A matrix times a vector, a program for some rows."""

import torch
import triton
import triton.language as tl


def reference(a, x):
    return a @ x


def get_inputs(rows=16384, cols=16384, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype), torch.randn(cols, dtype=dtype)]


SHAPES = [dict(rows=16384, cols=16384, dtype=torch.float16)]
TEST_SHAPES = [dict(rows=3, cols=1000), dict(rows=17, cols=65, dtype=torch.float16), dict(rows=1, cols=1)]
SPACE = {"ROWS": [1, 2, 4, 8, 16], "BLOCK": [128, 256, 512, 1024], "num_warps": [2, 4, 8]}


@triton.jit
def vector_kernel(a_ptr, x_ptr, y_ptr, n_rows, n_cols, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    total = tl.zeros([ROWS], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        keep = (row[:, None] < n_rows) & (at[None, :] < n_cols)
        a = tl.load(a_ptr + row[:, None] * n_cols + at[None, :], mask=keep, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + at, mask=at < n_cols, other=0.0).to(tl.float32)
        total += tl.sum(a * x[None, :], axis=1)
    tl.store(y_ptr + row, total.to(y_ptr.dtype.element_ty), mask=row < n_rows)


def multiply(a, x):
    rows, cols = a.shape
    y = torch.empty(rows, device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]),)
    vector_kernel[grid](a, x, y, rows, cols, ROWS=4, BLOCK=256, num_warps=4)
    return y
