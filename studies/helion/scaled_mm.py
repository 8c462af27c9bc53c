"""A product of a few rows of float8 with large weights, scaled, with a bias: a step of decoding."""

import torch
import triton
import triton.language as tl

FP8 = torch.float8_e4m3fn


def reference(a, b, scale_a, scale_b, bias):
    """b is (columns, inner)."""
    product = (a.float() @ b.float().T) * scale_a * scale_b
    return (product + bias.float()).to(torch.bfloat16)


def get_inputs(m=16, k=4096, n=4096):
    a, b = ((k**-0.5 * (0.5 + torch.rand(rows, k))).to(FP8) for rows in (m, n))
    return [a, b, 0.5 + torch.rand(1, 1), 0.5 + torch.rand(1, 1), 0.5 * (torch.rand(n, dtype=torch.bfloat16) - 0.5)]


def scaled_mm(a, b, scale_a, scale_b, bias):
    return torch._scaled_mm(a, b.T, scale_a=scale_a, scale_b=scale_b, bias=bias, out_dtype=torch.bfloat16)


BASELINES = {"torch._scaled_mm": scaled_mm}
INNER_AND_COLUMNS = [
    (2048, 4096), (2048, 2048), (2048, 12288), (6144, 2048), (4096, 6144), (4096, 4096), (4096, 24576), (12288, 4096),
    (5120, 10240), (5120, 5120), (5120, 51200), (25600, 5120),
]  # fmt: skip
SHAPES = [dict(m=m, k=k, n=n) for m in (16, 64) for k, n in INNER_AND_COLUMNS]
TEST_SHAPES = [dict(m=16, k=256, n=128), dict(m=32, k=128, n=64)]
SPACE = {
    "BLOCK_M": [16, 32, 64, 128, "min(64, max(16, next_power_of_2(M)))"],
    "BLOCK_N": [
        *(16, 32, 64, 128),
        "min(128, next_power_of_2(cdiv(N, 8192)) * BLOCK_M)",
        "min(128, max(16, next_power_of_2(cdiv(N, 8192)) * BLOCK_M // 2))",
        "min(64, max(16, next_power_of_2(N) // 256))",
    ],
    "BLOCK_K": [128, 256, 512, "128 if K <= 2048 else 256", "max(128, min(512, 16384 // max(BLOCK_M, BLOCK_N)))"],
    "EXACT": [32, 64, 128],
    "num_warps": [1, 2, 4, 8],
    "num_stages": [2, 3, 4, 5, 6],
}
CONFIG = {
    "BLOCK_M": "min(64, max(16, next_power_of_2(M)))",
    "BLOCK_N": 64,
    "BLOCK_K": 128,
    "EXACT": 128,
    "num_warps": 4,
    "num_stages": 6,
}


def bytes_moved(m, k, n):
    return (m + n) * k + 2 * m * n + 2 * n + 8


def flops(m, k, n):
    return 2 * m * k * n


@triton.jit
def scaled_mm_kernel(
    a_ptr,
    b_ptr,
    scale_a_ptr,
    scale_b_ptr,
    bias_ptr,
    c_ptr,
    M,
    N,
    K,
    a_stride,
    b_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EXACT: tl.constexpr,
):
    """The transpose of a tile: b's rows are the many ones, so they are the rows of the matrix unit.

    It adds products of float8 with few bits: what EXACT columns give is added up in float32.
    """
    tiles_m = tl.cdiv(M, BLOCK_M)
    rows = tl.program_id(0) % tiles_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(0) // tiles_m * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    a_at = a_ptr + rows[None, :] * a_stride + ks[:, None]
    b_at = b_ptr + cols[:, None] * b_stride + ks[None, :]
    total = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        b = tl.load(b_at + start, mask=(cols[:, None] < N) & (start + ks[None, :] < K), other=0.0)
        a = tl.load(a_at + start, mask=(rows[None, :] < M) & (start + ks[:, None] < K), other=0.0)
        total = tl.dot(b, a, total, max_num_imprecise_acc=EXACT)
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    c = total * (tl.load(scale_a_ptr) * tl.load(scale_b_ptr)) + bias[:, None]
    mask = (cols[:, None] < N) & (rows[None, :] < M)
    tl.store(c_ptr + rows[None, :] * N + cols[:, None], c.to(c_ptr.dtype.element_ty), mask=mask)


def multiply(a, b, scale_a, scale_b, bias):
    (M, K), N = a.shape, b.shape[0]
    c = torch.empty((M, N), dtype=torch.bfloat16, device=a.device)
    grid = lambda meta: (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)
    block_m = min(64, max(16, triton.next_power_of_2(M)))
    scaled_mm_kernel[grid](
        a,
        b,
        scale_a,
        scale_b,
        bias,
        c,
        M,
        N,
        K,
        a.stride(0),
        b.stride(0),
        BLOCK_M=block_m,
        BLOCK_N=64,
        BLOCK_K=128,
        EXACT=128,
        num_warps=4,
        num_stages=6,
    )
    return c
