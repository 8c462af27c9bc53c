"""Residual add, RMS norm, and float8 of rows, each block of 128 columns with its own scale of at most upper."""

import torch

GROUP = 128
FP8_MAX = 448.0
LEAST_SCALE = 1.0 / (FP8_MAX * 512.0)


def quantise(x, scale):
    return (x / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def reference(x, residual, weight, upper):
    wide = x.float() + residual.float()
    normed = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight
    blocks = normed.float().unflatten(-1, (-1, GROUP))
    scale = (torch.minimum(blocks.abs().amax(-1), upper) * (1.0 / FP8_MAX)).clamp(min=LEAST_SCALE)
    return quantise(blocks, scale[..., None]).flatten(-2), scale, wide.to(x.dtype)


def get_inputs(tokens=64, hidden=4096):
    x, residual = (torch.randn(tokens, hidden, dtype=torch.bfloat16) for _ in range(2))
    return [x, residual, 1.0 + torch.randn(hidden, dtype=torch.bfloat16), x.float().mean().abs()]


SHAPES = [dict(tokens=t, hidden=h) for h in (2048, 4096, 5120) for t in (1, 8, 32, 64, 128, 256, 1024, 4096)]
TEST_SHAPES = [dict(tokens=3, hidden=384), dict(tokens=1, hidden=128)]
