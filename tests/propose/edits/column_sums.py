"""Sums and sums of squares of columns: two accumulators in one loop, and what follows uses both."""

import torch
import triton
import triton.language as tl


def reference(x):
    return x.mean(dim=0), (x * x).mean(dim=0).sqrt()


def get_inputs(rows=65536, cols=1024, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype) + 10.0]


SHAPES = [dict(rows=65536, cols=1024)]
TEST_SHAPES = [dict(rows=70, cols=20), dict(rows=33, cols=16), dict(rows=1, cols=1), dict(rows=5, cols=3)]


@triton.jit
def column_sums_kernel(
    x_ptr, mean_ptr, var_ptr, stride, rows, cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr
):
    c = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    inside = c < cols
    total = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    squares = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    for start in range(0, rows, BLOCK_ROWS):
        r = start + tl.arange(0, BLOCK_ROWS)
        mask = (r[:, None] < rows) & inside[None, :]
        x = tl.load(x_ptr + r[:, None] * stride + c[None, :], mask=mask, other=0.0)
        total += tl.sum(x, axis=0)
        squares += tl.sum(x * x, axis=0)
    tl.store(mean_ptr + c, total / rows, mask=inside)
    tl.store(var_ptr + c, tl.sqrt(squares / rows), mask=inside)


def column_sums(x):
    rows, cols = x.shape
    mean = torch.empty(cols, dtype=x.dtype, device=x.device)
    var = torch.empty_like(mean)
    grid = lambda meta: (triton.cdiv(cols, meta["BLOCK_COLS"]),)
    column_sums_kernel[grid](x, mean, var, x.stride(0), rows, cols, BLOCK_ROWS=16, BLOCK_COLS=16)
    return mean, var
