# fault: rows begin at odd addresses, so that each load moves two bytes a thread
# bottleneck: issue
# change: none
"""Softmax of rows of 8191 bfloat16: no two rows have the same alignment; on an H100 it takes 1.16 times what 8192 take."""

import torch
import triton
import triton.language as tl

def reference(x):
    return torch.softmax(x, dim=-1)


def get_inputs(rows=16384, cols=8191, dtype=torch.bfloat16):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=16384, cols=8191)]
TEST_SHAPES = [dict(rows=5, cols=127)]


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax(x):
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, y, x.stride(0), y.stride(0), x.shape[1], BLOCK=block, num_warps=16)
    return y
