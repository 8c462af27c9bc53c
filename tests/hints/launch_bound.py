# fault: 128 KiB of work
# bottleneck: launch
# change: none
"""Softmax of 64 short rows: starting it takes longer than doing it."""

import torch
import triton
import triton.language as tl

def reference(x):
    return torch.softmax(x, dim=-1)


def get_inputs(rows=64, cols=256, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=64, cols=256)]
TEST_SHAPES = [dict(rows=3, cols=500)]


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * y_stride + cols, e / tl.sum(e, axis=0), mask=cols < n_cols)


def softmax(x):
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, y, x.stride(0), y.stride(0), x.shape[1], BLOCK=block, num_warps=2)
    return y
