"""Rows in 8 bits with a scale for each: the largest magnitude becomes 127."""

import torch
import triton
import triton.language as tl


def reference(x):
    scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-6) / 127.0
    scaled = x.float() / scale
    return torch.where(scaled >= 0, torch.floor(scaled + 0.5), torch.ceil(scaled - 0.5)).to(torch.int8), scale


def get_inputs(rows=16384, cols=4096, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=16384, cols=4096, dtype=torch.float16)]
TEST_SHAPES = [dict(rows=3, cols=1000), dict(rows=2, cols=100, dtype=torch.float16), dict(rows=1, cols=1)]
SPACE = {"BLOCK": [512, 1024, 2048, 4096], "num_warps": [1, 2, 4, 8, 16]}


@triton.jit
def quantize_kernel(x_ptr, q_ptr, s_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    base = row.to(tl.int64) * n_cols
    top = 0.0
    for start in range(0, n_cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < n_cols, other=0.0).to(tl.float32)
        top = tl.maximum(top, tl.max(tl.abs(x), axis=0))
    scale = tl.maximum(top, 1e-6) / 127.0
    tl.store(s_ptr + row, scale)
    for start in range(0, n_cols, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < n_cols, other=0.0).to(tl.float32)
        scaled = x / scale
        rounded = tl.where(scaled >= 0, tl.floor(scaled + 0.5), tl.ceil(scaled - 0.5))
        tl.store(q_ptr + base + at, rounded.to(tl.int8), mask=at < n_cols)


def quantize(x):
    rows, cols = x.shape
    q = torch.empty(rows, cols, device=x.device, dtype=torch.int8)
    scale = torch.empty(rows, 1, device=x.device, dtype=torch.float32)
    quantize_kernel[(rows,)](x, q, scale, cols, BLOCK=1024, num_warps=4)
    return q, scale
