# fault: each program loads nine rows, of which its neighbours load eight too
# bottleneck: memory bandwidth
# change: rows_2d or none
"""Means of nine rows: one program per row and block of columns."""

import torch
import triton
import triton.language as tl

def reference(x):
    rows = x.shape[0]
    padded = torch.nn.functional.pad(x, (0, 0, 4, 4))
    return sum(padded[i : i + rows] for i in range(9)) / 9


def get_inputs(rows=8192, cols=8192, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=8192, cols=8192)]
TEST_SHAPES = [dict(rows=30, cols=700)]


@triton.jit
def mean_kernel(x_ptr, y_ptr, stride, n_rows, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < n_cols
    total = tl.zeros([BLOCK], tl.float32)
    for i in tl.static_range(9):
        there = row + i - 4
        inside = (there >= 0) & (there < n_rows)
        total += tl.load(x_ptr + there * stride + cols, mask=mask & inside, other=0.0)
    tl.store(y_ptr + row * stride + cols, total / 9, mask=mask)


def mean(x):
    y = torch.empty_like(x)
    grid = (x.shape[0], triton.cdiv(x.shape[1], 1024))
    mean_kernel[grid](x, y, x.stride(0), x.shape[0], x.shape[1], BLOCK=1024, num_warps=4)
    return y
