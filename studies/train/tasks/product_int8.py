"""Activations times weights of 8 bits with a scale for each column."""

import torch
import triton
import triton.language as tl


def reference(x, w, scale):
    return (x.float() @ w.float() * scale.float()).to(x.dtype)


def get_inputs(m=2048, n=4096, k=4096, dtype=torch.float16):
    return [
        torch.randn(m, k, dtype=dtype),
        torch.randint(-127, 128, (k, n), dtype=torch.int8),
        torch.rand(n, dtype=dtype) / 127,
    ]


TEST_SHAPES = [dict(m=33, n=17, k=40), dict(m=16, n=16, k=16)]
SPACE = {"BM": [32, 64, 128], "BN": [32, 64, 128, 256], "BK": [32, 64], "num_warps": [4, 8], "num_stages": [2, 3, 4]}


@triton.jit
def int8_kernel(x_ptr, w_ptr, s_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros([BM, BN], dtype=tl.float32)
    for start in range(0, K, BK):
        at = start + k
        x = tl.load(x_ptr + m[:, None] * K + at[None, :], mask=(m[:, None] < M) & (at[None, :] < K), other=0.0)
        w = tl.load(w_ptr + at[:, None] * N + n[None, :], mask=(at[:, None] < K) & (n[None, :] < N), other=0)
        acc += tl.dot(x, w.to(x.dtype))
    scale = tl.load(s_ptr + n, mask=n < N, other=0.0).to(tl.float32)
    y = acc * scale[None, :]
    tl.store(
        y_ptr + m[:, None] * N + n[None, :], y.to(y_ptr.dtype.element_ty), mask=(m[:, None] < M) & (n[None, :] < N)
    )


def linear_int8(x, w, scale):
    M, K = x.shape
    N = w.shape[1]
    y = torch.empty(M, N, device=x.device, dtype=x.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))
    int8_kernel[grid](x, w, scale, y, M, N, K, BM=64, BN=64, BK=32, num_warps=4, num_stages=3)
    return y
