"""RMS norm of each query and key head and their rotary position embedding, in place in the joint tensor."""

import torch

WIDTH, POSITIONS = 128, 40960
MUTATES = ["qkv"]


def reference(qkv, q_weight, k_weight, table, positions, q_heads, kv_heads):
    heads = qkv.view(len(qkv), -1, WIDTH)[:, : q_heads + kv_heads]
    weight = torch.cat((q_weight.expand(q_heads, -1), k_weight.expand(kv_heads, -1)))
    wide = heads.float()
    normed = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(qkv.dtype) * weight
    cos, sin = table[positions].unsqueeze(1).chunk(2, dim=-1)
    first, second = normed.chunk(2, dim=-1)
    heads.copy_(torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1))


def get_inputs(tokens=128, q_heads=32, kv_heads=8):
    angles = torch.arange(POSITIONS)[:, None] / 10000.0 ** (torch.arange(0, WIDTH, 2) / WIDTH)
    table = torch.cat((angles.cos(), angles.sin()), dim=-1).to(torch.bfloat16)
    qkv = torch.empty(tokens, (q_heads + 2 * kv_heads) * WIDTH, dtype=torch.bfloat16).uniform_(-0.1, 0.1)
    weights = [torch.empty(WIDTH, dtype=torch.bfloat16).uniform_(0.8, 1.2) for _ in range(2)]
    return [qkv, *weights, table, torch.arange(tokens), q_heads, kv_heads]


SHAPES = [dict(tokens=t, q_heads=q, kv_heads=8) for q in (16, 32, 64) for t in (1, 8, 32, 128, 512, 2048, 8192)]
TEST_SHAPES = [dict(tokens=3, q_heads=16, kv_heads=8), dict(tokens=1, q_heads=32, kv_heads=8)]
