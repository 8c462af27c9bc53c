"""One-token attention of grouped queries over a paged cache: pages of 16 tokens, found by a table."""

import torch
import triton
import triton.language as tl

PAGE = 16


def reference(q, k_pages, v_pages, table, lengths):
    batch, heads, size = q.shape
    kv_heads = k_pages.shape[2]
    k, v = (pages[table.long()].reshape(batch, -1, kv_heads, size) for pages in (k_pages, v_pages))
    grouped = q.view(batch, kv_heads, heads // kv_heads, size)
    scores = torch.einsum("bhgd,bthd->bhgt", grouped, k) * size**-0.5
    valid = torch.arange(k.shape[1], device=q.device)[None, :] < lengths[:, None]
    scores = scores.float().masked_fill(~valid[:, None, None, :], float("-inf"))
    return torch.einsum("bhgt,bthd->bhgd", torch.softmax(scores, -1).to(v.dtype), v).reshape(batch, heads, size)


def get_inputs(batch=64, heads=32, kv_heads=8, size=128, pages=256, dtype=torch.bfloat16):
    shape = (batch * pages, PAGE, kv_heads, size)
    table = torch.randperm(batch * pages).reshape(batch, pages).to(torch.int32)
    lengths = torch.randint(1, pages * PAGE + 1, (batch,), dtype=torch.int32)
    return [
        torch.randn(batch, heads, size, dtype=dtype), torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype),
        table, lengths,
    ]  # fmt: skip


DOMAIN = {"table": "fixed", "lengths": "fixed"}
SHAPES = [
    dict(batch=64, heads=32, kv_heads=8, size=128, pages=256),
    dict(batch=8, heads=32, kv_heads=8, size=128, pages=1024),
]
TEST_SHAPES = [
    dict(batch=2, heads=8, kv_heads=2, size=64, pages=5),
    dict(batch=3, heads=4, kv_heads=1, size=32, pages=2),
    dict(batch=1, heads=2, kv_heads=2, size=128, pages=1),
]
SPACE = {"BLOCK_T": [16, 32, 64, 128], "num_warps": [1, 2, 4, 8], "num_stages": [1, 2, 3, 4]}


@triton.jit
def paged_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, o_ptr, scale, pages, PAGE: tl.constexpr, KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr, SIZE: tl.constexpr, BLOCK_G: tl.constexpr, BLOCK_T: tl.constexpr,
):  # fmt: skip
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
    for first in range(0, length, BLOCK_T):
        tokens = first + tl.arange(0, BLOCK_T)
        known = tokens < length
        page = tl.load(table_ptr + sequence * pages + tokens // PAGE, mask=known, other=0).to(tl.int64)
        at = ((page * PAGE + tokens % PAGE) * KV_HEADS + kv_head) * SIZE
        k = tl.load(k_ptr + at[None, :] + lanes[:, None], mask=known[None, :], other=0.0)
        scores = tl.where(known[None, :], tl.dot(q, k) * scale, float("-inf"))
        new = tl.maximum(top, tl.max(scores, axis=1))
        p = tl.exp(scores - new[:, None])
        rescale = tl.exp(top - new)
        weight = weight * rescale + tl.sum(p, axis=1)
        v = tl.load(v_ptr + at[:, None] + lanes[None, :], mask=known[:, None], other=0.0)
        total = total * rescale[:, None] + tl.dot(p.to(v.dtype), v)
        top = new
    o = (total / weight[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + head[:, None] * SIZE + lanes[None, :], o, mask=own)


def paged_attention(q, k_pages, v_pages, table, lengths):
    (batch, heads, size), kv_heads = q.shape, k_pages.shape[2]
    group, o = heads // kv_heads, torch.empty_like(q)
    paged_kernel[(batch, kv_heads)](
        q, k_pages, v_pages, table, lengths, o, size**-0.5, table.shape[1], PAGE=PAGE, KV_HEADS=kv_heads, GROUP=group,
        SIZE=size, BLOCK_G=max(16, triton.next_power_of_2(group)), BLOCK_T=64, num_warps=4, num_stages=2,
    )  # fmt: skip
    return o
