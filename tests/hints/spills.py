# fault: a row of 16384 elements in the registers of one warp
# bottleneck: spills
# change: num_warps
"""Subtracts each row's mean; 512 elements a thread do not fit 255 registers."""

import torch
import triton
import triton.language as tl

def reference(x):
    return x - x.mean(dim=1, keepdim=True)


def get_inputs(rows=8192, cols=16384, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=8192, cols=16384)]
TEST_SHAPES = [dict(rows=3, cols=1000)]


@triton.jit
def centre_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=0.0)
    mean = tl.sum(x, axis=0) / n_cols
    tl.store(y_ptr + row * y_stride + cols, x - mean, mask=cols < n_cols)


def centre(x):
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    centre_kernel[(x.shape[0],)](x, y, x.stride(0), y.stride(0), x.shape[1], BLOCK=block, num_warps=1)
    return y
