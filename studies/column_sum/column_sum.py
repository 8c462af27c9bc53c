"""Sum over the rows of a matrix: one program per block of columns, looping over blocks of rows."""

import torch
import triton
import triton.language as tl


def reference(x):
    return torch.sum(x, dim=0)


def get_inputs(rows=65536, cols=2048, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=65536, cols=2048, dtype=torch.float32)]
TEST_SHAPES = [dict(rows=300, cols=70), dict(rows=1030, cols=33), dict(rows=1, cols=1)]
SPACE = {
    "BLOCK_ROWS": [16, 32, 64, 128, 256],
    "BLOCK_COLS": [16, 32, 64, 128],
    "num_warps": [1, 2, 4, 8],
    "num_stages": [1, 2, 3, 4],
}


def bytes_moved(rows, cols, dtype):
    return (rows * cols + cols) * dtype.itemsize


def flops(rows, cols, dtype):
    return rows * cols


@triton.jit
def column_sum_kernel(x_ptr, y_ptr, x_stride, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    col_mask = cols < n_cols
    total = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    for start in range(0, n_rows, BLOCK_ROWS):
        rows = start + tl.arange(0, BLOCK_ROWS)
        mask = (rows[:, None] < n_rows) & col_mask[None, :]
        x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(x, axis=0)
    tl.store(y_ptr + cols, total.to(y_ptr.dtype.element_ty), mask=col_mask)


def column_sum(x):
    n_rows, n_cols = x.shape
    y = torch.empty(n_cols, dtype=x.dtype, device=x.device)
    grid = lambda meta: (triton.cdiv(n_cols, meta["BLOCK_COLS"]),)
    column_sum_kernel[grid](x, y, x.stride(0), n_rows, n_cols, BLOCK_ROWS=64, BLOCK_COLS=64, num_warps=4)
    return y
