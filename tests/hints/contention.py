# fault: 16,384 rows are added to 2,048 sums one row at a time
# bottleneck: contention
# change: none
"""Sums columns by one atomic addition for each element."""

import torch
import triton
import triton.language as tl


def reference(x):
    return torch.sum(x, dim=0)


def get_inputs(rows=16384, cols=2048, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=16384, cols=2048)]
TEST_SHAPES = [dict(rows=3, cols=500)]


@triton.jit
def column_sum_kernel(x_ptr, y_ptr, x_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=0.0)
    tl.atomic_add(y_ptr + cols, x, mask=cols < n_cols)


def column_sum(x):
    y = torch.zeros(x.shape[1], dtype=x.dtype, device=x.device)
    column_sum_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=2048, num_warps=8)
    return y
