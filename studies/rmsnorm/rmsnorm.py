"""Root-mean-square normalisation over the last axis with a weight: one program per row."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

EPS = 1e-6


def reference(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, eps=EPS)


def get_inputs(rows=16384, cols=4096, dtype=torch.float32):
    x = torch.randn(rows, cols, dtype=dtype)
    return [x, torch.randn(cols, dtype=dtype)]


SHAPES = [dict(rows=16384, cols=4096, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(rows=7, cols=1000), dict(rows=3, cols=257), dict(rows=1, cols=1)]
SPACE = {"num_warps": [1, 2, 4, 8, 16, 32]}


def liger(x, weight):
    from liger_kernel.transformers.functional import liger_rms_norm  # where it is not installed, reports say so

    return liger_rms_norm(x, weight, EPS)


def quack(x, weight):
    from quack import rmsnorm

    return rmsnorm(x, weight, eps=EPS)


BASELINES = {"liger": liger, "quack": quack}


def bytes_moved(rows, cols, dtype):
    return (2 * rows * cols + cols) * dtype.itemsize


def flops(rows, cols, dtype):
    return 4 * rows * cols  # square, sum, scale, weight


@triton.jit
def rmsnorm_kernel(x_ptr, weight_ptr, y_ptr, x_stride, y_stride, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
    mean_square = tl.sum(x * x, axis=0) / n_cols
    rstd = 1.0 / tl.sqrt(mean_square + eps)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    y = x * rstd * weight
    tl.store(y_ptr + row * y_stride + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def rmsnorm(x, weight):
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    block = triton.next_power_of_2(n_cols)
    rmsnorm_kernel[(n_rows,)](x, weight, y, x.stride(0), y.stride(0), n_cols, EPS, BLOCK=block, num_warps=4)
    return y
