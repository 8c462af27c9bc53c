# fault: each row is read three times
# bottleneck: memory bandwidth
# change: online
"""Softmax of long rows in three passes."""

import torch
import triton
import triton.language as tl

def reference(x):
    return torch.softmax(x, dim=-1)


def get_inputs(rows=4096, cols=65536, dtype=torch.bfloat16):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=4096, cols=65536)]
TEST_SHAPES = [dict(rows=3, cols=5000)]


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        best = tl.maximum(best, x)
    top = tl.max(best, axis=0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        total += tl.exp(x - top)
    scale = 1.0 / tl.sum(total, axis=0)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
        y = tl.exp(x - top) * scale
        tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=cols < n_cols)


def softmax(x):
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.stride(0), y.stride(0), x.shape[1], BLOCK=4096, num_warps=8)
    return y
