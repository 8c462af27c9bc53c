"""A mixture of experts' product: tokens sorted by expert, offsets on the device, y[t] = x[t] @ w[expert of t].T."""

from itertools import pairwise

import torch
import triton
import triton.language as tl


def reference(x, w, offsets):
    bounds = offsets.tolist()
    return torch.cat([x[a:b] @ w[e].T for e, (a, b) in enumerate(pairwise(bounds))])


def get_inputs(tokens=8192, experts=64, n=2048, k=2048, dtype=torch.bfloat16):
    bounds = torch.sort(torch.randint(0, tokens + 1, (experts - 1,))).values.to(torch.int32)
    ends = torch.tensor([0]), torch.tensor([tokens])
    offsets = torch.cat([ends[0].to(torch.int32), bounds, ends[1].to(torch.int32)])
    return [torch.randn(tokens, k, dtype=dtype), torch.randn(experts, n, k, dtype=dtype) * k**-0.5, offsets]


DOMAIN = {"offsets": "fixed"}
SHAPES = [dict(tokens=8192, experts=64, n=2048, k=2048), dict(tokens=512, experts=64, n=2048, k=2048)]
TEST_SHAPES = [
    dict(tokens=20, experts=4, n=48, k=64),
    dict(tokens=33, experts=1, n=16, k=40),
    dict(tokens=5, experts=8, n=70, k=96),
]  # fmt: skip
SPACE = {
    "BLOCK_M": [16, 32, 64, 128], "BLOCK_N": [64, 128, 256], "BLOCK_K": [32, 64, 128],
    "num_warps": [4, 8], "num_stages": [2, 3, 4],
}  # fmt: skip


def flops(tokens, experts, n, k):
    return 2 * tokens * n * k


@triton.jit
def grouped_kernel(
    x_ptr, w_ptr, offsets_ptr, y_ptr, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):  # fmt: skip
    expert = tl.program_id(2)
    begin = tl.load(offsets_ptr + expert)
    end = tl.load(offsets_ptr + expert + 1)
    first = begin + tl.program_id(0) * BLOCK_M
    if first < end:
        rows = (first + tl.arange(0, BLOCK_M)).to(tl.int64)
        columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
        total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        own = w_ptr + expert.to(tl.int64) * n * k
        for start in range(0, k, BLOCK_K):
            depth = start + tl.arange(0, BLOCK_K)
            inside = (rows[:, None] < end) & (depth[None, :] < k)
            x = tl.load(x_ptr + rows[:, None] * k + depth[None, :], mask=inside, other=0.0)
            known = (columns[None, :] < n) & (depth[:, None] < k)
            w = tl.load(own + columns[None, :] * k + depth[:, None], mask=known, other=0.0)
            total = tl.dot(x, w, total)
        at = y_ptr + rows[:, None] * n + columns[None, :]
        tl.store(at, total.to(y_ptr.dtype.element_ty), mask=(rows[:, None] < end) & (columns[None, :] < n))


def grouped_product(x, w, offsets):
    (tokens, k), (experts, n) = x.shape, w.shape[:2]
    y = torch.empty(tokens, n, dtype=x.dtype, device=x.device)
    grid = lambda meta: (triton.cdiv(tokens, meta["BLOCK_M"]), triton.cdiv(n, meta["BLOCK_N"]), experts)
    grouped_kernel[grid](x, w, offsets, y, n, k, BLOCK_M=64, BLOCK_N=128, BLOCK_K=64, num_warps=4, num_stages=3)
    return y
