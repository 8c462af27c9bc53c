"""Running sums of each row, block after block."""

import torch
import triton
import triton.language as tl


def reference(x):
    return torch.cumsum(x, dim=-1)


def get_inputs(rows=16384, cols=4096, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


TEST_SHAPES = [dict(rows=3, cols=1000), dict(rows=2, cols=33), dict(rows=1, cols=1)]
SPACE = {"BLOCK": [256, 512, 1024, 2048, 4096], "num_warps": [1, 2, 4, 8]}


@triton.jit
def sum_kernel(x_ptr, y_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = row.to(tl.int64) * n_cols
    before = 0.0
    for start in range(0, n_cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < n_cols, other=0.0).to(tl.float32)
        y = before + tl.cumsum(x, axis=0)
        tl.store(y_ptr + base + at, y.to(y_ptr.dtype.element_ty), mask=at < n_cols)
        before += tl.sum(x, axis=0)


def running_sum(x):
    y = torch.empty_like(x)
    rows, cols = x.shape
    sum_kernel[(rows,)](x, y, cols, BLOCK=512, num_warps=4)
    return y
