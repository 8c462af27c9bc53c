"""Float8 of rows, each group of 128 columns with its own scale."""

import torch

GROUP, FP8_MAX, EPS = 128, 448.0, 1e-10


def reference(x):
    groups = x.float().unflatten(-1, (-1, GROUP))
    scale = groups.abs().amax(-1).clamp(min=EPS) / FP8_MAX
    codes = (groups / scale[..., None]).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)
    return codes.flatten(-2), scale


def get_inputs(tokens=64, hidden=4096):
    return [torch.randn(tokens, hidden, dtype=torch.bfloat16)]


SHAPES = [dict(tokens=t, hidden=h) for h in (2048, 4096, 5120) for t in (1, 4, 16, 64, 256, 1024, 2048, 8192)]
TEST_SHAPES = [dict(tokens=3, hidden=384), dict(tokens=1, hidden=128)]
