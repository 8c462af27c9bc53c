# fault: 64 exponentials an element
# bottleneck: issue
# change: exp2
"""A long chain of exponentials for each element."""

import torch
import triton
import triton.language as tl

def reference(x):
    y = x
    for _ in range(64):
        y = torch.exp(-y * y)
    return y


def get_inputs(n=1 << 25):
    return [torch.randn(n)]


SHAPES = [dict(n=1 << 25)]
TEST_SHAPES = [dict(n=3000)]


@triton.jit
def chain_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x_ptr + i, mask=i < n, other=0.0)
    for _ in range(64):
        y = tl.exp(-y * y)
    tl.store(y_ptr + i, y, mask=i < n)


def chain(x):
    y = torch.empty_like(x)
    chain_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024, num_warps=4)
    return y
