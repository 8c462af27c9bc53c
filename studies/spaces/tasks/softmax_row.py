"""Softmax of short rows, persistent: a program walks over tiles of ROWS whole rows, PER_SM programs on each SM."""

import torch
import triton
import triton.language as tl

SMS = 132  # an H100; on another device the same spaces, with another number of programs


def reference(x):
    return torch.softmax(x, dim=-1)


def get_inputs(rows=65536, cols=768, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=65536, cols=768, dtype=torch.float32)]
TEST_SHAPES = [dict(rows=48, cols=640), dict(rows=16, cols=528)]
SPACE = {
    "ROWS": [1, 2, 4, 8],
    "PER_SM": [2, 4, 8, 16],
    "STAGES": [1, 2, 3, 4],
    "num_warps": [1, 2, 4, 8, 16],
}


def bytes_moved(rows, cols, dtype):
    return 2 * rows * cols * dtype.itemsize


@triton.jit
def softmax_row_kernel(
    x_ptr,
    y_ptr,
    n_rows,
    n_cols,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    PER_SM: tl.constexpr,
    STAGES: tl.constexpr,
):
    cols = tl.arange(0, BLOCK)
    for tile in tl.range(tl.program_id(0), tl.cdiv(n_rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        rows = tile * ROWS + tl.arange(0, ROWS)
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        offsets = rows[:, None] * n_cols + cols[None, :]
        x = tl.load(x_ptr + offsets, mask=mask, other=float("-inf")).to(tl.float32)
        numerator = tl.exp(x - tl.max(x, axis=1)[:, None])
        y = numerator / tl.sum(numerator, axis=1)[:, None]
        tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def softmax_row(x):
    x = x.contiguous()
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    grid = lambda meta: (min(triton.cdiv(n_rows, meta["ROWS"]), meta["PER_SM"] * SMS),)
    softmax_row_kernel[grid](
        x, y, n_rows, n_cols, BLOCK=triton.next_power_of_2(n_cols), ROWS=1, PER_SM=8, STAGES=2, num_warps=4
    )
    return y
