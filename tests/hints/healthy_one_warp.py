# fault: none
# bottleneck: memory bandwidth
# change: none
"""Sums rows with one warp and tiles of 64 elements: half the warps an SM can hold, and still enough bytes under way,
because ptxas unrolls the loop four times."""


import torch
import triton
import triton.language as tl

def reference(x):
    return torch.sum(x, dim=1)


def get_inputs(rows=65536, cols=4096, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=65536, cols=4096)]
TEST_SHAPES = [dict(rows=3, cols=5000)]


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, x_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=0.0)
    tl.store(y_ptr + row, tl.sum(total, axis=0))


def row_sum(x):
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    row_sum_kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=64, num_warps=1)
    return y
