"""Rotary position embedding of 32 query heads and 8 key heads in bfloat16."""

import torch


def turn(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def reference(q, k, cos, sin):
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return turn(q, cos, sin), turn(k, cos, sin)


def get_inputs(hidden=8192, tokens=2048):
    width = hidden // 32
    q, k = (torch.randn(1, heads, tokens, width, dtype=torch.bfloat16) for heads in (32, 8))
    angles = torch.randn(1, tokens, width, dtype=torch.bfloat16)
    return [q, k, torch.cos(angles), torch.sin(angles)]


SHAPES = [dict(hidden=8192, tokens=tokens) for tokens in (1024, 2048, 4096, 8192, 16384)]
SHAPES += [dict(hidden=hidden, tokens=2048) for hidden in (512, 2048)]
TEST_SHAPES = [dict(hidden=512, tokens=7), dict(hidden=2048, tokens=1)]
