"""A gated activation with one scale, as float8: silu(x[:, :n]) * x[:, n:] / scale."""

import torch
import torch.nn.functional as F


def reference(x, scale):
    gate, up = x.chunk(2, dim=-1)
    return ((F.silu(gate) * up).float() / scale).to(torch.float8_e4m3fn)


def get_inputs(tokens=64, inner=4096):
    return [torch.randn(tokens, 2 * inner, dtype=torch.bfloat16), torch.ones(1)]


SHAPES = [
    dict(tokens=tokens, inner=inner)
    for inner in (2048, 2880, 4096, 8192, 11008, 14336)
    for tokens in (1, 8, 32, 64, 128, 256)
]
TEST_SHAPES = [dict(tokens=3, inner=1000), dict(tokens=1, inner=129)]
