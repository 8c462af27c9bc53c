# task: topk_gate
# trick: values are taken by a product with 0 and 1, which is NaN beside -inf
# verdict: reject-wrong
import triton
import triton.language as tl

SPACE = {"BLOCK_T": [1, 4], "num_warps": [1, 4]}
CONFIG = {"BLOCK_T": 4, "num_warps": 4}


@triton.jit
def topk_gate_kernel(
    logits_ptr, weights_ptr, ids_ptr, n_tokens, n_experts,
    TOP_K: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_T: tl.constexpr,
):
    TAKEN: tl.constexpr = -3.0e38
    rows = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    e = tl.arange(0, BLOCK_E)
    mask = (rows[:, None] < n_tokens) & (e[None, :] < n_experts)
    x = tl.load(logits_ptr + rows[:, None] * n_experts + e[None, :], mask=mask, other=TAKEN).to(tl.float32)
    top = tl.max(x, axis=1)
    slot = tl.arange(0, TOP_K)
    w = tl.zeros([BLOCK_T, TOP_K], dtype=tl.float32)
    ids = tl.zeros([BLOCK_T, TOP_K], dtype=tl.int32)
    for i in tl.static_range(TOP_K):
        arg = tl.argmax(x, axis=1)
        hot = (e[None, :] == arg[:, None]).to(tl.float32)
        best = tl.sum(x * hot, axis=1)  # no second search for the largest
        w = tl.where(slot[None, :] == i, tl.exp(best - top)[:, None], w)
        ids = tl.where(slot[None, :] == i, arg[:, None], ids)
        x = tl.where(hot > 0, TAKEN, x)
    w = w / tl.sum(w, axis=1)[:, None]
    out = rows[:, None] * TOP_K + slot[None, :]
    tl.store(weights_ptr + out, w, mask=rows[:, None] < n_tokens)
    tl.store(ids_ptr + out, ids, mask=rows[:, None] < n_tokens)
