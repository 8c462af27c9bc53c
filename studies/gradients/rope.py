"""Rotary position embedding of queries and keys in bfloat16, with halves of heads as Llama has them."""

import torch

WIDTH = 128


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def reference(q, k, cos, sin):
    cos, sin = cos[:, None], sin[:, None]
    return rotate(q, cos, sin), rotate(k, cos, sin)


def get_inputs(seq=2048, q_heads=32, kv_heads=8):
    angles = torch.arange(seq)[:, None] / 10000.0 ** (torch.arange(0, WIDTH, 2) / WIDTH)
    table = torch.cat((angles, angles), dim=-1)[None]
    heads = (torch.randn(1, seq, n, WIDTH, dtype=torch.bfloat16).transpose(1, 2) for n in (q_heads, kv_heads))
    return [*heads, table.cos().to(torch.bfloat16), table.sin().to(torch.bfloat16)]


SHAPES = [dict(seq=seq) for seq in (1024, 2048, 4096, 8192, 16384)]
TEST_SHAPES = [dict(seq=5, q_heads=4, kv_heads=2), dict(seq=2, q_heads=3, kv_heads=1)]


def liger(q, k, cos, sin):
    from liger_kernel.transformers.functional import liger_rope

    return liger_rope(q, k, cos, sin)


BASELINES = {"liger": liger}
