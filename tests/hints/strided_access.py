# fault: lanes read elements that lie a row apart
# bottleneck: memory bandwidth
# change: rows_2d
"""Column maxima: one program per column, its lanes go down the column."""

import torch
import triton
import triton.language as tl

def reference(x):
    return torch.amax(x, dim=0)


def get_inputs(rows=8192, cols=8192, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=8192, cols=8192)]
TEST_SHAPES = [dict(rows=100, cols=17)]


@triton.jit
def column_max_kernel(x_ptr, y_ptr, x_stride, n_rows, BLOCK: tl.constexpr):
    col = tl.program_id(0)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, n_rows, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        best = tl.maximum(best, tl.load(x_ptr + rows * x_stride + col, mask=rows < n_rows, other=float("-inf")))
    tl.store(y_ptr + col, tl.max(best, axis=0))


def column_max(x):
    y = torch.empty(x.shape[1], dtype=x.dtype, device=x.device)
    column_max_kernel[(x.shape[1],)](x, y, x.stride(0), x.shape[0], BLOCK=1024, num_warps=4)
    return y
