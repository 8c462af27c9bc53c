# fault: none
# bottleneck: tensor core
# change: tile size or streamed_product or tensor_descriptor or none
"""A matrix product with warpgroup instructions, large tiles and a pipeline."""

import torch
import triton
import triton.language as tl

PRECISION = "ieee"


def reference(a, b):
    return torch.matmul(a, b)


def get_inputs(m=4096, n=4096, k=4096, dtype=torch.bfloat16):
    return [torch.randn(m, k, dtype=dtype), torch.randn(k, n, dtype=dtype)]


SHAPES = [dict(m=4096, n=4096, k=4096)]
TEST_SHAPES = [dict(m=128, n=256, k=128)]


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, K, stride_a, stride_b, stride_c, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], dtype=tl.float32)
    for start in range(0, K, BK):
        ks = start + tl.arange(0, BK)
        a = tl.load(a_ptr + rows[:, None] * stride_a + ks[None, :])
        b = tl.load(b_ptr + ks[:, None] * stride_b + cols[None, :])
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * stride_c + cols[None, :], acc.to(c_ptr.dtype.element_ty))


def matmul(a, b):
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    matmul_kernel[(a.shape[0] // 128, b.shape[1] // 256)](
        a, b, c, a.shape[1], a.stride(0), b.stride(0), c.stride(0), BM=128, BN=256, BK=64, num_warps=8, num_stages=3
    )
    return c
