"""Mean and variance of columns: loops that count tiles, sums by lane, a store between the loops."""

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
def column_moments_counted_kernel(
    x_ptr, mean_ptr, var_ptr, stride, rows, cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr
):
    c = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    offsets = tl.arange(0, BLOCK_ROWS)
    total = tl.zeros([BLOCK_ROWS, BLOCK_COLS], dtype=tl.float32)
    for i in range(0, tl.cdiv(rows, BLOCK_ROWS)):
        r = i * BLOCK_ROWS + offsets
        mask = (r < rows)[:, None] & (c < cols)[None, :]
        total += tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=mask, other=0.0)
    mean = tl.sum(total, axis=0) / rows
    tl.store(mean_ptr + c, mean, mask=c < cols)
    squares = tl.zeros([BLOCK_ROWS, BLOCK_COLS], dtype=tl.float32)
    for j in range(0, tl.cdiv(rows, BLOCK_ROWS)):
        r = j * BLOCK_ROWS + offsets
        mask = (r < rows)[:, None] & (c < cols)[None, :]
        x = tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=mask, other=0.0)
        x = tl.where(mask, x - mean[None, :], 0.0)
        squares += x * x
    tl.store(var_ptr + c, tl.sum(squares, axis=0) / rows, mask=c < cols)


def column_moments_counted(x):
    rows, cols = x.shape
    mean = torch.empty(cols, dtype=x.dtype, device=x.device)
    var = torch.empty_like(mean)
    grid = lambda meta: (triton.cdiv(cols, meta["BLOCK_COLS"]),)
    column_moments_counted_kernel[grid](x, mean, var, x.stride(0), rows, cols, BLOCK_ROWS=16, BLOCK_COLS=16)
    return mean, var
