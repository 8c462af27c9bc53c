# task: attention
# trick: none: keys in two parts, joined by a second launch
# verdict: accept
import triton
import triton.language as tl

GRID = {"part": "(cdiv(seq_len, BLOCK_M), grid(1), SPLIT)", "join": "(seq_len, grid(1))"}
SCRATCH = {"m_ptr": ("float32", "(SPLIT, grid(1), seq_len)"), "l_ptr": ("float32", "(SPLIT, grid(1), seq_len)"), "a_ptr": ("float32", "(SPLIT, grid(1), seq_len, HEAD_DIM)")}
LAUNCHES = ["part", "join"]
CONFIG = {"SPLIT": 2, "BLOCK_M": 32, "BLOCK_N": 32}


@triton.jit
def part(q_ptr, k_ptr, v_ptr, m_ptr, l_ptr, a_ptr, head_stride, seq_stride, seq_len, scale, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr):
    head = tl.program_id(1)
    z = tl.program_id(2)
    heads = tl.num_programs(1)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    dims = tl.arange(0, HEAD_DIM)
    base = head * head_stride
    ok = rows < seq_len
    q = tl.load(q_ptr + base + rows[:, None] * seq_stride + dims[None, :], mask=ok[:, None], other=0.0)
    m = tl.full([BLOCK_M], -1.0e30, dtype=tl.float32)
    l = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    for start in range(z * BLOCK_N, seq_len, BLOCK_N * SPLIT):
        keys = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + base + keys[None, :] * seq_stride + dims[:, None], mask=keys[None, :] < seq_len, other=0.0)
        v = tl.load(v_ptr + base + keys[:, None] * seq_stride + dims[None, :], mask=keys[:, None] < seq_len, other=0.0)
        s = tl.where(keys[None, :] < seq_len, tl.dot(q, k, input_precision="ieee") * scale, -float("inf"))
        n = tl.maximum(m, tl.max(s, axis=1))
        p = tl.exp(s - n[:, None])
        c = tl.exp(m - n)
        l = l * c + tl.sum(p, axis=1)
        acc = tl.dot(p.to(v.dtype), v, acc * c[:, None], input_precision="ieee")
        m = n
    at = (z * heads + head) * seq_len + rows
    tl.store(m_ptr + at, m, mask=ok)
    tl.store(l_ptr + at, l, mask=ok)
    tl.store(a_ptr + at[:, None] * HEAD_DIM + dims[None, :], acc, mask=ok[:, None])


@triton.jit
def join(o_ptr, m_ptr, l_ptr, a_ptr, head_stride, seq_stride, seq_len, HEAD_DIM: tl.constexpr, SPLIT: tl.constexpr):
    row = tl.program_id(0)
    head = tl.program_id(1)
    heads = tl.num_programs(1)
    z = tl.arange(0, SPLIT)
    dims = tl.arange(0, HEAD_DIM)
    at = (z * heads + head) * seq_len + row
    m = tl.load(m_ptr + at)
    c = tl.exp(m - tl.max(m, axis=0))
    l = tl.sum(tl.load(l_ptr + at) * c, axis=0)
    acc = tl.sum(tl.load(a_ptr + at[:, None] * HEAD_DIM + dims[None, :]) * c[:, None], axis=0)
    tl.store(o_ptr + head * head_stride + row * seq_stride + dims, (acc / l).to(o_ptr.dtype.element_ty))
