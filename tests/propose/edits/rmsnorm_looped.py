"""Root-mean-square normalisation in two passes over tiles of a row."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def reference(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, eps=1e-6)


def get_inputs(rows=16384, cols=4096):
    return [torch.randn(rows, cols), torch.randn(cols)]


SHAPES = [dict()]
TEST_SHAPES = [dict(rows=5, cols=70), dict(rows=1, cols=1), dict(rows=3, cols=64)]
SPACE = {"TILE": [512, 1024, 4096]}


@triton.jit
def rmsnorm_kernel(x_ptr, weight_ptr, y_ptr, x_stride, y_stride, n_cols, eps, TILE: tl.constexpr):
    row = tl.program_id(0)
    squares = 0.0
    for start in range(0, n_cols, TILE):
        cols = start + tl.arange(0, TILE)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
        squares += tl.sum(x * x, axis=0)
    rstd = 1.0 / tl.sqrt(squares / n_cols + eps)
    for start in range(0, n_cols, TILE):
        cols = start + tl.arange(0, TILE)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = x * rstd * weight
        tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def rmsnorm_looped(x, weight):
    y = torch.empty_like(x)
    rmsnorm_kernel[(x.shape[0],)](x, weight, y, x.stride(0), y.stride(0), x.shape[1], 1e-6, TILE=4096)
    return y


launch = rmsnorm_looped
