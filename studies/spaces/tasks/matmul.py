"""Matrix product, square: one program per tile of the output, tiles in groups of GROUP rows of tiles."""

import torch
import triton
import triton.language as tl


def reference(a, b):
    return torch.matmul(a, b)


def get_inputs(m=4096, n=4096, k=4096, dtype=torch.float32):
    return [torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)]


SHAPES = [dict(m=4096, n=4096, k=4096, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(m=144, n=80, k=48, dtype=torch.bfloat16), dict(m=32, n=272, k=144, dtype=torch.bfloat16)]
SPACE = {
    "BLOCK_M": [64, 128, 256],
    "BLOCK_N": [64, 128, 256],
    "BLOCK_K": [32, 64, 128],
    "GROUP": [1, 4, 8],
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4, 5],
}


def bytes_moved(m, n, k, dtype):
    return (m * k + k * n + m * n) * dtype.itemsize


def flops(m, n, k, dtype):
    return 2 * m * n * k


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
):
    pid = tl.program_id(0)
    n_n = tl.cdiv(N, BLOCK_N)
    first_m = pid // (GROUP * n_n) * GROUP
    size_m = tl.minimum(tl.cdiv(M, BLOCK_M) - first_m, GROUP)
    pid_m = first_m + pid % (GROUP * n_n) % size_m
    pid_n = pid % (GROUP * n_n) // size_m
    rows = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    cols = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    ks = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * K + ks[None, :]
    b_ptrs = b_ptr + ks[:, None] * N + cols[None, :]
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        a = tl.load(a_ptrs, mask=ks[None, :] < K - start, other=0.0)
        b = tl.load(b_ptrs, mask=ks[:, None] < K - start, other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * N
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask)


def matmul(a, b):
    a, b = a.contiguous(), b.contiguous()
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N, dtype=a.dtype, device=a.device)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)
    matmul_kernel[grid](a, b, c, M, N, K, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, GROUP=8, num_warps=4, num_stages=3)
    return c
