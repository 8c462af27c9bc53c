"""Softmax of long rows: one program per row, an online pass for maximum and sum, then a pass that writes."""

import torch
import triton
import triton.language as tl


def reference(x):
    return torch.softmax(x, dim=-1)


def get_inputs(rows=4096, cols=32768, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=4096, cols=32768, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(rows=4, cols=5008, dtype=torch.bfloat16), dict(rows=2, cols=17008, dtype=torch.bfloat16)]
SPACE = {
    "BLOCK": [512, 1024, 2048, 4096, 8192, 16384],
    "STAGES": [1, 2, 3, 4],
    "UNROLL": [1, 2, 4],
    "num_warps": [4, 8, 16, 32],
}


def bytes_moved(rows, cols, dtype):
    return 2 * rows * cols * dtype.itemsize


@triton.jit
def softmax_looped_kernel(
    x_ptr,
    y_ptr,
    row_stride,
    n_cols,
    BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
    UNROLL: tl.constexpr,
):
    row = tl.program_id(0)
    x_row = x_ptr + row * row_stride
    y_row = y_ptr + row * row_stride
    row_max = -float("inf")
    row_sum = 0.0
    for start in tl.range(0, n_cols, BLOCK, num_stages=STAGES, loop_unroll_factor=UNROLL):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        new_max = tl.maximum(row_max, tl.max(x, axis=0))
        scale = tl.where(row_max == new_max, 1.0, tl.exp(row_max - new_max))
        row_sum = row_sum * scale + tl.sum(tl.where(x == float("-inf"), 0.0, tl.exp(x - new_max)), axis=0)
        row_max = new_max
    for start in tl.range(0, n_cols, BLOCK, num_stages=STAGES, loop_unroll_factor=UNROLL):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_row + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        y = tl.exp(x - row_max) / row_sum
        tl.store(y_row + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax_looped(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    softmax_looped_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=4096, STAGES=2, UNROLL=1, num_warps=8)
    return y
