"""Matrix product: one program per tile of the output, a loop over K, a float32 accumulator."""

import torch
import triton
import triton.language as tl


def reference(a, b):
    return torch.matmul(a, b)


def get_inputs(m=4096, n=4096, k=4096, dtype=torch.float32):
    return [torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)]


SHAPES = [
    dict(m=4096, n=4096, k=4096, dtype=torch.bfloat16),
    dict(m=512, n=4096, k=14336, dtype=torch.bfloat16),
]
TEST_SHAPES = [
    dict(m=37, n=45, k=70, dtype=torch.bfloat16),
    dict(m=64, n=48, k=32, dtype=torch.bfloat16),
    dict(m=130, n=65, k=33),
    dict(m=1, n=1, k=1),
]
SPACE = {
    "BLOCK_M": [32, 64, 128, 256],
    "BLOCK_N": [32, 64, 128, 256],
    "BLOCK_K": [32, 64, 128],
    "num_warps": [4, 8],
    "num_stages": [2, 3, 4, 5],
}


def quack(a, b):
    from quack.gemm_interface import gemm  # where it is not installed, reports say so

    return gemm(a, b)


BASELINES = {"quack": quack}


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
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K)
        a_mask = (rows[:, None] < M) & (ks[None, :] < K)
        b_mask = (ks[:, None] < K) & (cols[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c_mask = (rows[:, None] < M) & (cols[None, :] < N)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn, c, mask=c_mask)


def matmul(a, b):
    M, K = a.shape
    _, N = b.shape
    c = torch.empty(M, N, dtype=a.dtype, device=a.device)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]), triton.cdiv(N, meta["BLOCK_N"]))
    matmul_kernel[grid](
        a,
        b,
        c,
        M,
        N,
        K,
        a.stride(0),
        a.stride(1),
        b.stride(0),
        b.stride(1),
        c.stride(0),
        c.stride(1),
        BLOCK_M=64,
        BLOCK_N=64,
        BLOCK_K=32,
        num_warps=4,
        num_stages=3,
    )
    return c
