# task: attention
# trick: none: tensor descriptors, made on the device, for queries and outputs
# verdict: accept
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, head_stride, seq_stride, seq_len, scale,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    head = tl.program_id(1)
    dims = tl.arange(0, HEAD_DIM)
    base = head * head_stride
    start_row = tl.program_id(0) * BLOCK_M
    source = tl.make_tensor_descriptor(q_ptr + base, [seq_len, HEAD_DIM], [seq_stride, 1], [BLOCK_M, HEAD_DIM])
    target = tl.make_tensor_descriptor(o_ptr + base, [seq_len, HEAD_DIM], [seq_stride, 1], [BLOCK_M, HEAD_DIM])
    q = source.load([start_row, 0])

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
    target.store([start_row, 0], o.to(o_ptr.dtype.element_ty))
