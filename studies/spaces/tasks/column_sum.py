"""Column sum with SPLIT programs a block of columns: lanes add up in registers, one atomic a column ends a program."""

import torch
import triton
import triton.language as tl


def reference(x):
    return torch.sum(x, dim=0)


def get_inputs(rows=65536, cols=2048, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=65536, cols=2048, dtype=torch.float32)]
TEST_SHAPES = [dict(rows=320, cols=80), dict(rows=1040, cols=48)]
SPACE = {
    "BLOCK_ROWS": [16, 32, 64, 128],
    "BLOCK_COLS": [32, 64, 128, 256],
    "SPLIT": [8, 16, 32, 64],
    "STAGES": [1, 2, 4],
    "num_warps": [2, 4, 8],
}


def bytes_moved(rows, cols, dtype):
    return (rows * cols + cols) * dtype.itemsize


@triton.jit
def column_sum_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLS: tl.constexpr,
    SPLIT: tl.constexpr,
    STAGES: tl.constexpr,
):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    share = tl.cdiv(tl.cdiv(n_rows, SPLIT), BLOCK_ROWS) * BLOCK_ROWS
    begin = tl.program_id(1) * share
    end = tl.minimum(begin + share, n_rows)
    total = tl.zeros([BLOCK_ROWS, BLOCK_COLS], dtype=tl.float32)
    for start in tl.range(begin, end, BLOCK_ROWS, num_stages=STAGES):
        rows = start + tl.arange(0, BLOCK_ROWS)
        mask = (rows[:, None] < end) & (cols[None, :] < n_cols)
        total += tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.atomic_add(y_ptr + cols, tl.sum(total, axis=0), mask=cols < n_cols)


def column_sum(x):
    x = x.contiguous()
    n_rows, n_cols = x.shape
    y = torch.zeros(n_cols, dtype=torch.float32, device=x.device)
    grid = lambda meta: (triton.cdiv(n_cols, meta["BLOCK_COLS"]), meta["SPLIT"])
    column_sum_kernel[grid](x, y, n_rows, n_cols, BLOCK_ROWS=32, BLOCK_COLS=64, SPLIT=16, STAGES=2, num_warps=4)
    return y.to(x.dtype)
