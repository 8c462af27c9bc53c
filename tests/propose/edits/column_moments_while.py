"""Mean and variance of columns: while loops."""

import torch
import triton
import triton.language as tl


def reference(x):
    return x.mean(dim=0), x.var(dim=0, unbiased=False)


def get_inputs(rows=65536, cols=1024, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype) + 10.0]


SHAPES = [dict(rows=65536, cols=1024)]
TEST_SHAPES = [dict(rows=70, cols=20), dict(rows=33, cols=16), dict(rows=1, cols=1), dict(rows=5, cols=3)]


@triton.jit
def column_moments_while_kernel(
    x_ptr, mean_ptr, var_ptr, stride, rows, cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr
):
    c = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    total = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    i = 0
    while i < rows:
        r = i + tl.arange(0, BLOCK_ROWS)
        mask = (r[:, None] < rows) & (c[None, :] < cols)
        total += tl.sum(tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=mask, other=0.0), 0)
        i += BLOCK_ROWS
    mean = total / rows
    squares = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    i = 0
    while i < rows:
        r = i + tl.arange(0, BLOCK_ROWS)
        mask = (r[:, None] < rows) & (c[None, :] < cols)
        x = tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=mask, other=0.0)
        centred = tl.where(mask, x - mean[None, :], 0.0)
        squares += tl.sum(centred * centred, 0)
        i += BLOCK_ROWS
    tl.store(mean_ptr + c, mean, mask=c < cols)
    tl.store(var_ptr + c, squares / rows, mask=c < cols)


def column_moments_while(x):
    rows, cols = x.shape
    mean = torch.empty(cols, dtype=x.dtype, device=x.device)
    var = torch.empty_like(mean)
    grid = lambda meta: (triton.cdiv(cols, meta["BLOCK_COLS"]),)
    column_moments_while_kernel[grid](x, mean, var, x.stride(0), rows, cols, BLOCK_ROWS=16, BLOCK_COLS=16)
    return mean, var
