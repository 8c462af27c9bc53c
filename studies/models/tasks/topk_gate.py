"""A router of experts: softmax over 128, the best 8 with renormalised weights, of equal ones the first."""

import torch
import triton
import triton.language as tl

TOP_K = 8


def reference(logits):
    # torch.topk leaves open which of two equal logits it takes; a stable sort takes the first
    _, ids = torch.sort(logits.float(), dim=-1, descending=True, stable=True)
    ids = ids[:, :TOP_K]
    weights = torch.softmax(logits.float(), dim=-1).gather(1, ids)
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return weights, ids.to(torch.int32)


def topk(logits):
    weights, ids = torch.topk(torch.softmax(logits.float(), dim=-1), TOP_K, dim=-1)
    return weights / weights.sum(dim=-1, keepdim=True), ids.to(torch.int32)


BASELINES = {"topk": topk}


def get_inputs(tokens=32768, experts=128, dtype=torch.bfloat16):
    return [torch.randn(tokens, experts, dtype=dtype)]


SHAPES = [dict(tokens=32768, experts=128), dict(tokens=131072, experts=128)]
TEST_SHAPES = [dict(tokens=7, experts=60), dict(tokens=33, experts=128), dict(tokens=1, experts=8)]


def bytes_moved(tokens, experts, dtype):
    return tokens * (experts * dtype.itemsize + TOP_K * 8)


@triton.jit
def topk_gate_kernel(
    logits_ptr,
    weights_ptr,
    ids_ptr,
    n_tokens,
    n_experts,
    TOP_K: tl.constexpr,
    BLOCK_E: tl.constexpr,
    BLOCK_T: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    e = tl.arange(0, BLOCK_E)
    mask = (rows[:, None] < n_tokens) & (e[None, :] < n_experts)
    x = tl.load(logits_ptr + rows[:, None] * n_experts + e[None, :], mask=mask, other=float("-inf")).to(tl.float32)
    top = tl.max(x, axis=1)
    slot = tl.arange(0, TOP_K)
    w = tl.zeros([BLOCK_T, TOP_K], dtype=tl.float32)
    ids = tl.zeros([BLOCK_T, TOP_K], dtype=tl.int32)
    for i in tl.static_range(TOP_K):
        best = tl.max(x, axis=1)
        arg = tl.argmax(x, axis=1)
        w = tl.where(slot[None, :] == i, tl.exp(best - top)[:, None], w)
        ids = tl.where(slot[None, :] == i, arg[:, None], ids)
        x = tl.where(e[None, :] == arg[:, None], float("-inf"), x)
    w = w / tl.sum(w, axis=1)[:, None]
    out = rows[:, None] * TOP_K + slot[None, :]
    tl.store(weights_ptr + out, w, mask=rows[:, None] < n_tokens)
    tl.store(ids_ptr + out, ids, mask=rows[:, None] < n_tokens)


def topk_gate(logits):
    tokens, experts = logits.shape
    weights = torch.empty(tokens, TOP_K, dtype=torch.float32, device=logits.device)
    ids = torch.empty(tokens, TOP_K, dtype=torch.int32, device=logits.device)
    grid = lambda meta: (triton.cdiv(tokens, meta["BLOCK_T"]),)
    topk_gate_kernel[grid](
        logits,
        weights,
        ids,
        tokens,
        experts,
        TOP_K=TOP_K,
        BLOCK_E=triton.next_power_of_2(experts),
        BLOCK_T=4,
        num_warps=4,
    )
    return weights, ids
