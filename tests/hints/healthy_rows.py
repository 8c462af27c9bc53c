# fault: none
# bottleneck: memory bandwidth
# change: none
"""Doubles a matrix of aligned rows: 16 bytes a thread, everything once."""

import torch
import triton
import triton.language as tl

def reference(x):
    return x * 2


def get_inputs(rows=16384, cols=8192, dtype=torch.bfloat16):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=16384, cols=8192)]
TEST_SHAPES = [dict(rows=5, cols=127)]


@triton.jit
def double_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols).to(tl.float32)
    tl.store(y_ptr + row * y_stride + cols, (x * 2).to(y_ptr.dtype.element_ty), mask=cols < n_cols)


def double(x):
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    double_kernel[(x.shape[0],)](x, y, x.stride(0), y.stride(0), x.shape[1], BLOCK=block, num_warps=8)
    return y
