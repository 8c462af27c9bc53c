# fault: one warp a program: an SM holds 32 programs, half of its warps, with 64 bytes each under way
# bottleneck: occupancy
# change: num_warps
"""Sums rows with one warp and tiles of 32 elements."""


import torch
import triton
import triton.language as tl

def reference(x):
    return torch.sum(x, dim=1)


def get_inputs(rows=65536, cols=4096, dtype=torch.bfloat16):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=65536, cols=4096)]
TEST_SHAPES = [dict(rows=3, cols=5000)]


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, x_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(total, axis=0).to(y_ptr.dtype.element_ty))


def row_sum(x):
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    row_sum_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=32, num_warps=1)
    return y
