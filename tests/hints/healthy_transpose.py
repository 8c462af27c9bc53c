# fault: none
# bottleneck: memory bandwidth
# change: none
"""Transposes a matrix without a pipeline: the compiler swizzles the tile."""

import torch
import triton
import triton.language as tl

def reference(x):
    return x.t().contiguous()


def get_inputs(rows=8192, cols=8192, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=8192, cols=8192)]
TEST_SHAPES = [dict(rows=128, cols=256)]


@triton.jit
def transpose_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, TILE: tl.constexpr, STAGES: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    chunk = tl.program_id(1) * 16 * TILE
    for start in tl.range(chunk, min(chunk + 16 * TILE, n_cols), TILE, num_stages=STAGES):
        cols = start + tl.arange(0, TILE)
        x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :])
        tl.store(y_ptr + cols[:, None] * y_stride + rows[None, :], tl.trans(x))


def transpose(x):
    y = torch.empty(x.shape[1], x.shape[0], dtype=x.dtype, device=x.device)
    grid = (x.shape[0] // 128, triton.cdiv(x.shape[1], 16 * 128))
    transpose_kernel[grid](x, y, x.stride(0), y.stride(0), x.shape[1], TILE=128, STAGES=1, num_warps=8)
    return y
