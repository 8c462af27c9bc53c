"""RMS norm of each query and key head and their rotary position embedding, in place in the joint tensor."""

import torch
import triton
import triton.language as tl

WIDTH, POSITIONS = 128, 40960
EPS = 1e-6
MUTATES = ["qkv"]


def reference(qkv, q_weight, k_weight, table, positions, q_heads, kv_heads):
    heads = qkv.view(len(qkv), -1, WIDTH)[:, : q_heads + kv_heads]
    weight = torch.cat((q_weight.expand(q_heads, -1), k_weight.expand(kv_heads, -1)))
    wide = heads.float()
    normed = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPS)).to(qkv.dtype) * weight
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
SPACE = {
    "HEADS": [
        *(1, 2, 4, 8, 16, 32, 64),
        "2 if n_pairs <= 2048 else 16",
        "4 if n_pairs <= 4096 else 32",
        "8 if n_pairs <= 8192 else 32",
    ],
    "num_warps": [1, 2, 4, 8, "max(1, HEADS // 2)", "max(1, HEADS // 4)", "max(1, HEADS // 8)"],
}
CONFIG = {"HEADS": "4 if n_pairs <= 4096 else 32", "num_warps": "max(1, HEADS // 4)"}


def bytes_moved(tokens, q_heads, kv_heads):
    return tokens * WIDTH * ((q_heads + kv_heads) * 2 + 1) * 2


@triton.jit
def fused_qk_norm_rope_kernel(
    qkv_ptr,
    q_weight_ptr,
    k_weight_ptr,
    table_ptr,
    positions_ptr,
    token_stride,
    table_stride,
    n_heads,
    q_heads,
    n_pairs,
    eps,
    HALF: tl.constexpr,
    HEADS: tl.constexpr,
):
    """HEADS pairs of a token and one of its heads, counted over the tokens; a head is read as its two halves."""
    pair = tl.program_id(0) * HEADS + tl.arange(0, HEADS)
    cols = tl.arange(0, HALF)[None, :]
    position = tl.load(positions_ptr + pair // n_heads, mask=pair < n_pairs, other=0)[:, None]
    pair = pair[:, None]
    mask = pair < n_pairs
    token, head = pair // n_heads, pair % n_heads
    at = qkv_ptr + token * token_stride + head * (2 * HALF) + cols
    first = tl.load(at, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(at + HALF, mask=mask, other=0.0).to(tl.float32)
    weight_at = tl.where(head < q_heads, q_weight_ptr, k_weight_ptr) + cols
    weight = tl.load(weight_at, mask=mask, other=0.0)
    late_weight = tl.load(weight_at + HALF, mask=mask, other=0.0)
    cos = tl.load(table_ptr + position * table_stride + cols, mask=mask, other=0.0).to(tl.float32)
    sin = tl.load(table_ptr + position * table_stride + HALF + cols, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(first * first + second * second, axis=1) / (2 * HALF) + eps)[:, None]
    first = first * rstd * weight.to(tl.float32)
    second = second * rstd * late_weight.to(tl.float32)
    tl.store(at, (first * cos - second * sin).to(qkv_ptr.dtype.element_ty), mask=mask)
    tl.store(at + HALF, (second * cos + first * sin).to(qkv_ptr.dtype.element_ty), mask=mask)


def fused_qk_norm_rope(qkv, q_weight, k_weight, table, positions, q_heads, kv_heads):
    heads = q_heads + kv_heads
    pairs = qkv.shape[0] * heads
    block = 4 if pairs <= 4096 else 32
    grid = lambda meta: (triton.cdiv(pairs, meta["HEADS"]),)
    fused_qk_norm_rope_kernel[grid](
        qkv,
        q_weight,
        k_weight,
        table,
        positions,
        qkv.stride(0),
        table.stride(0),
        heads,
        q_heads,
        pairs,
        EPS,
        HALF=WIDTH // 2,
        HEADS=block,
        num_warps=block // 4,
    )
