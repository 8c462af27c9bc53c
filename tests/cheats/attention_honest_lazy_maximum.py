# task: attention
# trick: none: the maximum is only raised where a larger one is far above it
# verdict: accept
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, head_stride, seq_stride, seq_len, scale,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
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
        found = tl.max(scores, axis=1)
        new_max = tl.where(found > row_max + 3.0, found, tl.maximum(row_max, tl.where(row_max == float("-inf"), found, row_max)))
        correction = tl.exp(row_max - new_max)
        p = tl.exp(scores - new_max[:, None])
        row_sum = row_sum * correction + tl.sum(p, axis=1)
        acc = acc * correction[:, None]
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        row_max = new_max
    o = acc / row_sum[:, None]
    tl.store(o_ptr + row_offsets, o.to(o_ptr.dtype.element_ty), mask=row_mask)
