# fault: one warp a program of 256 bytes: an SM holds 32 programs, of any size, and waits for memory
# bottleneck: occupancy
# change: rows_2d
"""Scales groups of 128 numbers by their largest, one group a program."""


import torch
import triton
import triton.language as tl

def reference(x):
    return x / x.abs().amax(1, keepdim=True)


def get_inputs(groups=131072, width=128, dtype=torch.bfloat16):
    return [torch.randn(groups, width, dtype=dtype)]


TEST_SHAPES = [dict(groups=3, width=128)]


@triton.jit
def scale_kernel(x_ptr, y_ptr, width, BLOCK: tl.constexpr):
    cols = tl.arange(0, BLOCK)
    at = tl.program_id(0) * width + cols
    x = tl.load(x_ptr + at, mask=cols < width, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, (x / tl.max(tl.abs(x), axis=0)).to(y_ptr.dtype.element_ty), mask=cols < width)


def scale(x):
    y = torch.empty_like(x)
    scale_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]), num_warps=1)
    return y
