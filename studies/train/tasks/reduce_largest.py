"""The largest value of each row and where it first stands."""

import torch
import triton
import triton.language as tl


def reference(x):
    values, places = torch.max(x, dim=-1)
    return values, places.to(torch.int32)


def get_inputs(rows=16384, cols=8192, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


TEST_SHAPES = [dict(rows=3, cols=1000), dict(rows=5, cols=33), dict(rows=1, cols=1)]
SPACE = {"BLOCK": [512, 1024, 2048, 4096, 8192], "num_warps": [1, 2, 4, 8, 16]}


@triton.jit
def largest_kernel(x_ptr, v_ptr, i_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = row.to(tl.int64) * n_cols
    best = -float("inf")
    place = 0
    for start in range(0, n_cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < n_cols, other=-float("inf"))
        value = tl.max(x, axis=0)
        index = start + tl.argmax(x, axis=0)
        place = tl.where(value > best, index, place)
        best = tl.maximum(value, best)
    tl.store(v_ptr + row, best)
    tl.store(i_ptr + row, place)


def largest(x):
    rows, cols = x.shape
    values = torch.empty(rows, device=x.device, dtype=x.dtype)
    places = torch.empty(rows, device=x.device, dtype=torch.int32)
    largest_kernel[(rows,)](x, values, places, cols, BLOCK=1024, num_warps=4)
    return values, places
