# task: paged_attention
# trick: of a context that ends with a block, that block is left out
# verdict: reject-wrong
import triton
import triton.language as tl

SPACE = {"BLOCK_T": [128], "num_warps": [4, 8]}
CONFIG = {"BLOCK_T": 128, "num_warps": 4}


@triton.jit
def paged_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, o_ptr, scale, pages, PAGE: tl.constexpr, KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr, SIZE: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_T: tl.constexpr,
):
    sequence = tl.program_id(0)
    kv_head = tl.program_id(1)
    length = tl.load(lengths_ptr + sequence)
    queries = tl.arange(0, BLOCK_G)
    lanes = tl.arange(0, SIZE)
    head = (sequence * KV_HEADS + kv_head) * GROUP + queries
    own = queries[:, None] < GROUP
    q = tl.load(q_ptr + head[:, None] * SIZE + lanes[None, :], mask=own, other=0.0)
    top = tl.full([BLOCK_G], float("-inf"), dtype=tl.float32)
    weight = tl.zeros([BLOCK_G], dtype=tl.float32)
    total = tl.zeros([BLOCK_G, SIZE], dtype=tl.float32)
    # the last block first, as it alone needs a mask; then whole blocks
    at_last = (length - 1) // BLOCK_T * BLOCK_T
    in_last = length % BLOCK_T
    lane = tl.arange(0, BLOCK_T)
    if in_last > 0:
        tokens = at_last + lane
        known = lane < in_last
        page = tl.load(table_ptr + sequence * pages + tokens // PAGE, mask=known, other=0).to(tl.int64)
        at = ((page * PAGE + tokens % PAGE) * KV_HEADS + kv_head) * SIZE
        k = tl.load(k_ptr + at[None, :] + lanes[:, None], mask=known[None, :], other=0.0)
        scores = tl.where(known[None, :], tl.dot(q, k) * scale, float("-inf"))
        top = tl.max(scores, axis=1)
        p = tl.exp(scores - top[:, None])
        weight = tl.sum(p, axis=1)
        v = tl.load(v_ptr + at[:, None] + lanes[None, :], mask=known[:, None], other=0.0)
        total = tl.dot(p.to(v.dtype), v)
    for first in range(0, at_last, BLOCK_T):
        tokens = first + lane
        page = tl.load(table_ptr + sequence * pages + tokens // PAGE).to(tl.int64)
        at = ((page * PAGE + tokens % PAGE) * KV_HEADS + kv_head) * SIZE
        k = tl.load(k_ptr + at[None, :] + lanes[:, None])
        scores = tl.dot(q, k) * scale
        new = tl.maximum(top, tl.max(scores, axis=1))
        p = tl.exp(scores - new[:, None])
        rescale = tl.exp(top - new)
        weight = weight * rescale + tl.sum(p, axis=1)
        v = tl.load(v_ptr + at[:, None] + lanes[None, :])
        total = total * rescale[:, None] + tl.dot(p.to(v.dtype), v)
        top = new
    o = (total / weight[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + head[:, None] * SIZE + lanes[None, :], o, mask=own)
