"""Matrix product of few rows and a long K: SPLIT programs share a tile of the output and add with atomics."""

import torch
import triton
import triton.language as tl


def reference(a, b):
    return torch.matmul(a, b)


def get_inputs(m=512, n=4096, k=14336, dtype=torch.float32):
    return [torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)]


SHAPES = [dict(m=512, n=4096, k=14336, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(m=144, n=80, k=48, dtype=torch.bfloat16), dict(m=32, n=144, k=528, dtype=torch.bfloat16)]
SPACE = {
    "BLOCK_M": [32, 64, 128],
    "BLOCK_N": [64, 128, 256],
    "BLOCK_K": [64, 128],
    "SPLIT": [1, 2, 4],
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4, 5],
}


def bytes_moved(m, n, k, dtype):
    return (m * k + k * n + m * n) * dtype.itemsize


def flops(m, n, k, dtype):
    return 2 * m * n * k


@triton.jit
def matmul_skinny_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    share = tl.cdiv(tl.cdiv(K, SPLIT), BLOCK_K) * BLOCK_K
    begin = tl.program_id(2) * share
    end = tl.minimum(begin + share, K)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(begin, end, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + (rows % M)[:, None] * K + ks[None, :], mask=ks[None, :] < end, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * N + (cols % N)[None, :], mask=ks[:, None] < end, other=0.0)
        acc = tl.dot(a, b, acc)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    offsets = rows[:, None] * N + cols[None, :]
    if SPLIT == 1:
        tl.store(c_ptr + offsets, acc, mask=mask)
    else:
        tl.atomic_add(c_ptr + offsets, acc, mask=mask)


def matmul_skinny(a, b):
    a, b = a.contiguous(), b.contiguous()
    (M, K), N = a.shape, b.shape[1]
    c = torch.zeros(M, N, dtype=torch.float32, device=a.device)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]), meta["SPLIT"])
    matmul_skinny_kernel[grid](a, b, c, M, N, K, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, SPLIT=1, num_warps=4, num_stages=3)
    return c.to(a.dtype)
