# task: decode_attention
# trick: of a context that ends with a block, that block is left out
# verdict: reject-wrong
import triton
import triton.language as tl

LAUNCHES = ["decode_split_kernel", "decode_combine_kernel"]
SPACE = {"decode_split_kernel.BLOCK_T": [64, 128], "num_warps": [4, 8]}
CONFIG = {"decode_split_kernel.BLOCK_T": 128, "num_warps": 4}


@triton.jit
def decode_split_kernel(
    q_ptr, k_ptr, v_ptr, lens_ptr, part_ptr, lse_ptr, scale, stride_kb, stride_kt, stride_kh,
    Q_HEADS: tl.constexpr, GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_T: tl.constexpr,
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
        t_mask = tl.where(t0 + BLOCK_T < seq_len, BLOCK_T, seq_len % BLOCK_T) > t - t0
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
