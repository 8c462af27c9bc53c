"""Products of a batch of matrices."""

import torch
import triton
import triton.language as tl


def reference(a, b):
    return torch.bmm(a, b)


def get_inputs(batch=64, m=1024, n=1024, k=512, dtype=torch.float16):
    return [torch.randn(batch, m, k, dtype=dtype), torch.randn(batch, k, n, dtype=dtype)]


TEST_SHAPES = [dict(batch=2, m=33, n=17, k=40), dict(batch=1, m=16, n=16, k=16)]
SPACE = {"BM": [32, 64, 128], "BN": [32, 64, 128, 256], "BK": [32, 64], "num_warps": [4, 8], "num_stages": [2, 3, 4]}


@triton.jit
def batch_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    batch = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_at = a_ptr + batch * M * K + m[:, None] * K + k[None, :]
    b_at = b_ptr + batch * K * N + k[:, None] * N + n[None, :]
    acc = tl.zeros([BM, BN], dtype=tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_at, mask=(m[:, None] < M) & (start + k[None, :] < K), other=0.0)
        b = tl.load(b_at, mask=(start + k[:, None] < K) & (n[None, :] < N), other=0.0)
        acc += tl.dot(a, b)
        a_at += BK
        b_at += BK * N
    c_at = c_ptr + batch * M * N + m[:, None] * N + n[None, :]
    tl.store(c_at, acc.to(c_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N))


def multiply(a, b):
    batch, M, K = a.shape
    N = b.shape[2]
    c = torch.empty(batch, M, N, device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]), batch)
    batch_kernel[grid](a, b, c, M, N, K, BM=64, BN=64, BK=32, num_warps=4, num_stages=3)
    return c
