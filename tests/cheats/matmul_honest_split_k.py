# task: matmul
# trick: none: K split over programs, float32 parts through scratch
# verdict: accept
import triton
import triton.language as tl

LAUNCHES = ["parts", "together"]
GRID = {"parts": "(cdiv(M, BLOCK_M), cdiv(N, BLOCK_N), SPLIT)", "together": "(cdiv(M, BLOCK_M), cdiv(N, BLOCK_N))"}
SCRATCH = {"part_ptr": ("float32", "(SPLIT, M, N)")}
CONFIG = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "SPLIT": 2}


@triton.jit
def parts(
    a_ptr, b_ptr, part_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    part = tl.program_id(2)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(part * BLOCK_K, K, BLOCK_K * SPLIT):
        ks = start + tl.arange(0, BLOCK_K)
        a_mask = (rows[:, None] < M) & (ks[None, :] < K)
        b_mask = (ks[:, None] < K) & (cols[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(part_ptr + part * M * N + rows[:, None] * N + cols[None, :], acc, mask=mask)


@triton.jit
def together(
    part_ptr, c_ptr, M, N, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for part in range(SPLIT):
        acc += tl.load(part_ptr + part * M * N + rows[:, None] * N + cols[None, :], mask=mask, other=0.0)
    tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn, acc.to(c_ptr.dtype.element_ty), mask=mask)
