"""Rotary position embedding of 32 query heads and 8 key heads in bfloat16."""

import torch
import triton
import triton.language as tl


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
SPACE = {
    "TOKENS": [
        1,
        2,
        4,
        8,
        "max(1, 512 // BLOCK)",
        "max(1, 1024 // BLOCK)",
        "max(1, 2048 // BLOCK)",
        "max(1, 4096 // BLOCK)",
    ],
    "HEADS": [1, 2, 4, 8],
    "num_warps": [
        "min(16, max(1, TOKENS * BLOCK // 128))",
        "min(16, max(1, TOKENS * BLOCK // 256))",
        "min(16, max(1, TOKENS * BLOCK // 512))",
        *(1, 2, 4, 8),
    ],
}
CONFIG = {"TOKENS": "max(1, 1024 // BLOCK)", "HEADS": 4, "num_warps": "min(16, max(1, TOKENS * BLOCK // 256))"}


def bytes_moved(hidden, tokens):
    return tokens * (hidden // 32) * 2 * (2 * 40 + 2)  # 40 heads read and written, the angles read


@triton.jit
def turn_heads(
    x_ptr, y_ptr, first_head, n_heads, x_stride, y_stride, x_at, y_at, cos, cos_late, sin, sin_late, mask,
    HALF: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    for number in tl.static_range(HEADS):
        head = first_head + number
        inside = mask & (head < n_heads)
        x_head, y_head = x_ptr + head * x_stride + x_at, y_ptr + head * y_stride + y_at
        x = tl.load(x_head, mask=inside, other=0.0).to(tl.float32)
        late = tl.load(x_head + HALF, mask=inside, other=0.0).to(tl.float32)
        y = x * cos - late * sin
        y_late = late * cos_late + x * sin_late
        tl.store(y_head, y.to(y_ptr.dtype.element_ty), mask=inside)
        tl.store(y_head + HALF, y_late.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def rope_kernel(
    q_ptr,
    k_ptr,
    cos_ptr,
    sin_ptr,
    q_out_ptr,
    k_out_ptr,
    q_head,
    q_token,
    k_head,
    k_token,
    cos_token,
    sin_token,
    q_out_head,
    q_out_token,
    k_out_head,
    k_out_token,
    q_heads,
    k_heads,
    n_tokens,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
    TOKENS: tl.constexpr,
    HEADS: tl.constexpr,
):
    """Some heads of q, or of k, at some tokens: the angles are read once for all of the heads."""
    group = tl.program_id(0)
    tokens = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)[:, None]
    cols = tl.arange(0, BLOCK)[None, :]
    mask = (tokens < n_tokens) & (cols < HALF)
    cos_at, sin_at = cos_ptr + tokens * cos_token + cols, sin_ptr + tokens * sin_token + cols
    cos = tl.load(cos_at, mask=mask, other=0.0).to(tl.float32)
    cos_late = tl.load(cos_at + HALF, mask=mask, other=0.0).to(tl.float32)
    sin = tl.load(sin_at, mask=mask, other=0.0).to(tl.float32)
    sin_late = tl.load(sin_at + HALF, mask=mask, other=0.0).to(tl.float32)
    q_groups = tl.cdiv(q_heads, HEADS)
    if group < q_groups:
        turn_heads(
            q_ptr, q_out_ptr, group * HEADS, q_heads, q_head, q_out_head, tokens * q_token + cols,
            tokens * q_out_token + cols, cos, cos_late, sin, sin_late, mask, HALF, HEADS,
        )  # fmt: skip
    else:
        turn_heads(
            k_ptr, k_out_ptr, (group - q_groups) * HEADS, k_heads, k_head, k_out_head, tokens * k_token + cols,
            tokens * k_out_token + cols, cos, cos_late, sin, sin_late, mask, HALF, HEADS,
        )  # fmt: skip


def rope(q, k, cos, sin):
    """One sequence, whose heads have an even width."""
    _, q_heads, n_tokens, width = q.shape
    k_heads, half = k.shape[1], width // 2
    block = triton.next_power_of_2(half)
    q_out, k_out = torch.empty_like(q), torch.empty_like(k)
    grid = lambda meta: (
        triton.cdiv(q_heads, meta["HEADS"]) + triton.cdiv(k_heads, meta["HEADS"]),
        triton.cdiv(n_tokens, meta["TOKENS"]),
    )
    rope_kernel[grid](
        q,
        k,
        cos,
        sin,
        q_out,
        k_out,
        *(q.stride(1), q.stride(2), k.stride(1), k.stride(2), cos.stride(1), sin.stride(1)),
        *(q_out.stride(1), q_out.stride(2), k_out.stride(1), k_out.stride(2)),
        q_heads,
        k_heads,
        n_tokens,
        HALF=half,
        BLOCK=block,
        TOKENS=max(1, 1024 // block),
        HEADS=4,
        num_warps=4,
    )
    return q_out, k_out
