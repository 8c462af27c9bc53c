"""RMS norm and float8 of rows, each with its own scale."""

import torch

FP8_MAX = 448.0
LEAST_SCALE = 1.0 / (FP8_MAX * 512.0)


def quantise(x, scale):
    return (x / scale).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def reference(x, weight):
    wide = x.float()
    normed = ((wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight).float()
    scale = (normed.abs().amax(-1, keepdim=True) * (1.0 / FP8_MAX)).clamp(min=LEAST_SCALE)
    return quantise(normed, scale), scale


def get_inputs(tokens=64, hidden=4096):
    return [torch.randn(tokens, hidden, dtype=torch.bfloat16), 1.0 + torch.randn(hidden, dtype=torch.bfloat16)]


TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
SHAPES = [dict(tokens=tokens, hidden=hidden) for hidden in (2048, 4096, 5120) for tokens in TOKENS]
TEST_SHAPES = [dict(tokens=3, hidden=1000), dict(tokens=1, hidden=129)]
