"""Layer normalisation over the last axis with weight and bias: one program per row."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

EPS = 1e-5


def reference(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, eps=EPS)


def get_inputs(rows=16384, cols=4096, dtype=torch.float32):
    x = torch.randn(rows, cols, dtype=dtype)
    # Not ones and zeros: a kernel that forgets weight or bias must be seen to be wrong.
    return [x, torch.randn(cols, dtype=dtype), torch.randn(cols, dtype=dtype)]


SHAPES = [dict(rows=16384, cols=4096, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(rows=7, cols=1000), dict(rows=3, cols=257), dict(rows=2, cols=2)]
SPACE = {"num_warps": [1, 2, 4, 8, 16, 32]}


def liger(x, weight, bias):
    from liger_kernel.transformers.functional import liger_layer_norm  # where it is not installed, reports say so

    return liger_layer_norm(x, weight, bias, EPS)


def quack(x, weight, bias):
    from quack.rmsnorm import layernorm_fwd

    return layernorm_fwd(x, weight.float(), bias.float(), EPS)  # it takes no others


BASELINES = {"liger": liger, "quack": quack}


def bytes_moved(rows, cols, dtype):
    return (2 * rows * cols + 2 * cols) * dtype.itemsize


def flops(rows, cols, dtype):
    return 7 * rows * cols  # sum, centre, square, sum, scale, weight, bias


@triton.jit
def layernorm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, x_stride, y_stride, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n_cols
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / n_cols
    rstd = 1.0 / tl.sqrt(variance + eps)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = centred * rstd * weight + bias
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def layernorm(x, weight, bias):
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    block = triton.next_power_of_2(n_cols)
    layernorm_kernel[(n_rows,)](x, weight, bias, y, x.stride(0), y.stride(0), n_cols, EPS, BLOCK=block, num_warps=4)
    return y
