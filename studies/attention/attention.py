"""Attention forward, not causal: one program per block of queries, an online softmax over blocks of keys."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def reference(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def get_inputs(batch=4, heads=16, seq=4096, head_dim=128, dtype=torch.float32):
    shape = (batch, heads, seq, head_dim)
    return [torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)]


SHAPES = [dict(batch=4, heads=16, seq=4096, head_dim=128, dtype=torch.bfloat16)]
TEST_SHAPES = [
    dict(batch=1, heads=2, seq=45, head_dim=32, dtype=torch.bfloat16),
    dict(batch=1, heads=1, seq=64, head_dim=16, dtype=torch.bfloat16),
    dict(batch=1, heads=1, seq=150, head_dim=16),
    dict(batch=1, heads=1, seq=1, head_dim=16),
]
SPACE = {
    "BLOCK_M": [32, 64, 128],
    "BLOCK_N": [32, 64, 128],
    "num_warps": [4, 8],
    "num_stages": [1, 2, 3, 4],
}


def cudnn(q, k, v):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v)


def flash(q, k, v):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v)


def flash_4(q, k, v):
    from flash_attn.cute import flash_attn_func  # where it is not installed, reports say so

    out, *_ = flash_attn_func(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2))
    return out.transpose(1, 2)


BASELINES = {"cudnn": cudnn, "flash": flash, "flash-attn-4": flash_4}


def bytes_moved(batch, heads, seq, head_dim, dtype):
    return 4 * batch * heads * seq * head_dim * dtype.itemsize


def flops(batch, heads, seq, head_dim, dtype):
    return 4 * batch * heads * seq * seq * head_dim


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    o_ptr,
    head_stride,
    seq_stride,
    seq_len,
    scale,
    HEAD_DIM: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    head = tl.program_id(1)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD_DIM)
    base = head * head_stride
    row_mask = rows[:, None] < seq_len
    row_offsets = base + rows[:, None] * seq_stride + dims[None, :]
    q = tl.load(q_ptr + row_offsets, mask=row_mask, other=0.0)

    row_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    for start in range(0, seq_len, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + base + keys[None, :] * seq_stride + dims[:, None], mask=keys[None, :] < seq_len, other=0.0)
        v = tl.load(v_ptr + base + keys[:, None] * seq_stride + dims[None, :], mask=keys[:, None] < seq_len, other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        scores = tl.where(keys[None, :] < seq_len, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        correction = tl.exp(row_max - new_max)
        p = tl.exp(scores - new_max[:, None])
        row_sum = row_sum * correction + tl.sum(p, axis=1)
        acc = acc * correction[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        row_max = new_max
    o = acc / row_sum[:, None]
    tl.store(o_ptr + row_offsets, o.to(o_ptr.dtype.element_ty), mask=row_mask)


def attention(q, k, v):
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    batch, heads, seq, head_dim = q.shape
    o = torch.empty_like(q)
    grid = lambda meta: (triton.cdiv(seq, meta["BLOCK_M"]), batch * heads)
    attention_kernel[grid](
        q,
        k,
        v,
        o,
        q.stride(1),
        q.stride(2),
        seq,
        head_dim**-0.5,
        HEAD_DIM=head_dim,
        BLOCK_M=64,
        BLOCK_N=64,
        num_warps=4,
        num_stages=2,
    )
    return o
