"""Group norm of images, a program for each group of an image."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

EPS = 1e-5


def reference(x, weight, bias, groups):
    return F.group_norm(x, groups, weight, bias, EPS)


def get_inputs(images=64, channels=512, pixels=1024, groups=32, dtype=torch.float32):
    parts = [torch.randn(images, channels, pixels, dtype=dtype)]
    return [*parts, torch.randn(channels, dtype=dtype), torch.randn(channels, dtype=dtype), groups]


SHAPES = [dict(images=64, channels=512, pixels=1024, groups=32, dtype=torch.float16)]
TEST_SHAPES = [dict(images=2, channels=12, pixels=49, groups=3), dict(images=1, channels=4, pixels=9, groups=4)]
SPACE = {"BLOCK": [512, 1024, 2048, 4096], "num_warps": [2, 4, 8, 16]}


@triton.jit
def group_kernel(x_ptr, w_ptr, b_ptr, y_ptr, groups, per_group, pixels, eps, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    size = per_group * pixels
    base = pid.to(tl.int64) * size
    channel = (pid % groups) * per_group
    mean = 0.0
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mean += tl.sum(tl.load(x_ptr + base + at, mask=at < size, other=0.0).to(tl.float32), axis=0)
    mean = mean / size
    var = 0.0
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < size, other=0.0).to(tl.float32)
        d = tl.where(at < size, x - mean, 0.0)
        var += tl.sum(d * d, axis=0)
    rstd = 1.0 / tl.sqrt(var / size + eps)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + at, mask=at < size, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + channel + at // pixels, mask=at < size, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + channel + at // pixels, mask=at < size, other=0.0).to(tl.float32)
        tl.store(y_ptr + base + at, ((x - mean) * rstd * w + b).to(y_ptr.dtype.element_ty), mask=at < size)


def group_norm(x, weight, bias, groups):
    y = torch.empty_like(x)
    images, channels, pixels = x.shape
    group_kernel[(images * groups,)](x, weight, bias, y, groups, channels // groups, pixels, EPS, BLOCK=1024)
    return y
