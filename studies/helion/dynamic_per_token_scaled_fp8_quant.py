"""Float8 of rows, each with its own scale."""

import torch

FP8_MAX = 448.0
LEAST_SCALE = 1.0 / (FP8_MAX * 512.0)


def quantise(x, scale):
    return (x / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def reference(x):
    x = x.float()
    scale = (x.abs().amax(-1, keepdim=True) * (1.0 / FP8_MAX)).clamp(min=LEAST_SCALE)
    return quantise(x, scale), scale


def get_inputs(tokens=64, hidden=4096):
    return [torch.randn(tokens, hidden, dtype=torch.bfloat16)]


SHAPES = [dict(tokens=t, hidden=h) for h in (2048, 4096, 5120) for t in (1, 4, 16, 64, 256, 1024, 2048, 4096)]
TEST_SHAPES = [dict(tokens=3, hidden=1000), dict(tokens=1, hidden=129)]
