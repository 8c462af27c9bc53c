"""One-token attention of grouped queries over a contiguous cache, split over the context, and combined."""

import torch
import triton
import triton.language as tl


def reference(q, k_cache, v_cache, seq_lens):
    batch, q_heads, head_dim = q.shape
    kv_heads, context = k_cache.shape[2], k_cache.shape[1]
    group = q_heads // kv_heads
    qg = q.view(batch, kv_heads, group, head_dim).float()
    scores = torch.einsum("bhgd,bthd->bhgt", qg, k_cache.float()) * head_dim**-0.5
    valid = torch.arange(context, device=q.device)[None, :] < seq_lens[:, None]
    scores = scores.masked_fill(~valid[:, None, None, :], float("-inf"))
    p = torch.softmax(scores, dim=-1)
    return torch.einsum("bhgt,bthd->bhgd", p, v_cache.float()).reshape(batch, q_heads, head_dim).to(q.dtype)


def get_inputs(batch=64, q_heads=32, kv_heads=8, head_dim=128, context=4096, dtype=torch.bfloat16):
    return [
        torch.randn(batch, q_heads, head_dim, dtype=dtype),
        torch.randn(batch, context, kv_heads, head_dim, dtype=dtype),
        torch.randn(batch, context, kv_heads, head_dim, dtype=dtype),
        torch.randint(context // 2 + 1, context + 1, (batch,), dtype=torch.int32),
    ]


SHAPES = [
    dict(batch=64, q_heads=32, kv_heads=8, head_dim=128, context=4096),
    dict(batch=8, q_heads=32, kv_heads=8, head_dim=128, context=16384),
]
TEST_SHAPES = [
    dict(batch=2, q_heads=8, kv_heads=2, head_dim=64, context=300),
    dict(batch=3, q_heads=4, kv_heads=1, head_dim=32, context=17),
    dict(batch=1, q_heads=2, kv_heads=2, head_dim=128, context=1),
]


def bytes_moved(batch, q_heads, kv_heads, head_dim, context, dtype):
    # sequences are half full at the least
    return 2 * batch * (context // 2) * kv_heads * head_dim * dtype.itemsize


@triton.jit
def decode_split_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    lens_ptr,
    part_ptr,
    lse_ptr,
    scale,
    stride_kb,
    stride_kt,
    stride_kh,
    Q_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_T: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
):
    b = tl.program_id(0)
    kvh = tl.program_id(1)
    split = tl.program_id(2)
    seq_len = tl.load(lens_ptr + b)
    per_split = tl.cdiv(tl.cdiv(seq_len, NUM_SPLITS), BLOCK_T) * BLOCK_T
    begin = split * per_split
    end = tl.minimum(begin + per_split, seq_len)

    g = tl.arange(0, BLOCK_G)
    d = tl.arange(0, HEAD_DIM)
    head = kvh * GROUP + g
    g_mask = g < GROUP
    q = tl.load(q_ptr + (b * Q_HEADS + head[:, None]) * HEAD_DIM + d[None, :], mask=g_mask[:, None], other=0.0)

    m = tl.full([BLOCK_G], float("-inf"), dtype=tl.float32)
    s = tl.zeros([BLOCK_G], dtype=tl.float32)
    acc = tl.zeros([BLOCK_G, HEAD_DIM], dtype=tl.float32)
    base = b.to(tl.int64) * stride_kb + kvh * stride_kh
    for t0 in range(begin, end, BLOCK_T):
        t = t0 + tl.arange(0, BLOCK_T)
        t_mask = t < end
        k = tl.load(k_ptr + base + t[None, :] * stride_kt + d[:, None], mask=t_mask[None, :], other=0.0)
        scores = tl.dot(q, k) * scale
        scores = tl.where(t_mask[None, :], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, axis=1))
        p = tl.exp(scores - m_new[:, None])
        alpha = tl.exp(m - m_new)
        s = s * alpha + tl.sum(p, axis=1)
        v = tl.load(v_ptr + base + t[:, None] * stride_kt + d[None, :], mask=t_mask[:, None], other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m = m_new

    out = (b * Q_HEADS + head) * NUM_SPLITS + split
    safe = tl.where(s > 0, s, 1.0)
    tl.store(part_ptr + out[:, None] * HEAD_DIM + d[None, :], acc / safe[:, None], mask=g_mask[:, None])
    tl.store(lse_ptr + out, m + tl.log(safe), mask=g_mask)


@triton.jit
def decode_combine_kernel(part_ptr, lse_ptr, o_ptr, HEAD_DIM: tl.constexpr, NUM_SPLITS: tl.constexpr):
    row = tl.program_id(0)
    split = tl.arange(0, NUM_SPLITS)
    d = tl.arange(0, HEAD_DIM)
    lse = tl.load(lse_ptr + row * NUM_SPLITS + split)
    part = tl.load(part_ptr + (row * NUM_SPLITS + split[:, None]) * HEAD_DIM + d[None, :])
    w = tl.exp(lse - tl.max(lse, axis=0))
    o = tl.sum(part * w[:, None], axis=0) / tl.sum(w, axis=0)
    tl.store(o_ptr + row * HEAD_DIM + d, o.to(o_ptr.dtype.element_ty))


def decode_attention(q, k_cache, v_cache, seq_lens):
    batch, q_heads, head_dim = q.shape
    kv_heads = k_cache.shape[2]
    group = q_heads // kv_heads
    splits = 8
    part = torch.empty(batch, q_heads, splits, head_dim, dtype=torch.float32, device=q.device)
    lse = torch.empty(batch, q_heads, splits, dtype=torch.float32, device=q.device)
    o = torch.empty_like(q)
    decode_split_kernel[(batch, kv_heads, splits)](
        q,
        k_cache,
        v_cache,
        seq_lens,
        part,
        lse,
        head_dim**-0.5,
        k_cache.stride(0),
        k_cache.stride(1),
        k_cache.stride(2),
        Q_HEADS=q_heads,
        GROUP=group,
        HEAD_DIM=head_dim,
        BLOCK_G=max(16, triton.next_power_of_2(group)),
        BLOCK_T=64,
        NUM_SPLITS=splits,
        num_warps=4,
        num_stages=2,
    )
    decode_combine_kernel[(batch * q_heads,)](part, lse, o, HEAD_DIM=head_dim, NUM_SPLITS=splits, num_warps=4)
    return o
