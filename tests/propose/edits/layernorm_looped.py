"""Layer normalisation in three passes over tiles of a row, as a person writes it whose rows fit no tile."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def reference(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, eps=1e-5)


def get_inputs(rows=16384, cols=4096):
    return [torch.randn(rows, cols), torch.randn(cols), torch.randn(cols)]


SHAPES = [dict()]
TEST_SHAPES = [dict(rows=5, cols=70), dict(rows=2, cols=2), dict(rows=3, cols=64)]
SPACE = {"TILE": [512, 1024, 4096]}


@triton.jit
def layernorm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, x_stride, y_stride, n_cols, eps, TILE: tl.constexpr):
    row = tl.program_id(0)
    mean_sum = 0.0
    for start in range(0, n_cols, TILE):
        cols = start + tl.arange(0, TILE)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
        mean_sum += tl.sum(x, axis=0)
    mean = mean_sum / n_cols
    variance_sum = 0.0
    for start in range(0, n_cols, TILE):
        cols = start + tl.arange(0, TILE)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
        centred = tl.where(mask, x - mean, 0.0)
        variance_sum += tl.sum(centred * centred, axis=0)
    variance = variance_sum / n_cols
    rstd = 1.0 / tl.sqrt(variance + eps)
    for start in range(0, n_cols, TILE):
        cols = start + tl.arange(0, TILE)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
        centred = tl.where(mask, x - mean, 0.0)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = centred * rstd * weight + bias
        tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def layernorm_looped(x, weight, bias):
    y = torch.empty_like(x)
    rows, cols = x.shape
    layernorm_kernel[(rows,)](x, weight, bias, y, x.stride(0), y.stride(0), cols, 1e-5, TILE=4096)
    return y


launch = layernorm_looped
