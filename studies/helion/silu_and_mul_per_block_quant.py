"""A gated activation, and float8 of its rows, each block of 128 columns with its own scale."""

import torch

GROUP = 128
FP8_MAX = 448.0
LEAST_SCALE = 1.0 / (FP8_MAX * 512.0)


def quantise(x, scale):
    return (x / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def reference(x):
    gate, up = x.float().chunk(2, dim=-1)
    blocks = (gate * torch.sigmoid(gate) * up).unflatten(-1, (-1, GROUP))
    scale = (blocks.abs().amax(-1) * (1.0 / FP8_MAX)).clamp(min=LEAST_SCALE)
    return quantise(blocks, scale[..., None]).flatten(-2), scale


def get_inputs(tokens=64, inner=6144):
    return [torch.randn(tokens, 2 * inner, dtype=torch.bfloat16)]


SHAPES = [dict(tokens=t, inner=i) for i in (6144, 12288, 25600) for t in (1, 8, 32, 64, 128, 256, 1024, 4096)]
TEST_SHAPES = [dict(tokens=3, inner=384), dict(tokens=1, inner=128)]
