# task: matmul
# trick: none: split over k, parts added atomically to a float32 scratch, then rounded
# verdict: accept
import triton
import triton.language as tl

LAUNCHES = ["parts", "rounded"]
GRID = {"parts": "(cdiv(M, BLOCK_M), cdiv(N, BLOCK_N), SPLIT)", "rounded": "(cdiv(M, BLOCK_M), cdiv(N, BLOCK_N))"}
SCRATCH = {"sum_ptr": ("float32", "(M, N)", 0)}
CONFIG = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "SPLIT": 3}


@triton.jit
def parts(
    a_ptr, b_ptr, sum_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(tl.program_id(2) * BLOCK_K, K, BLOCK_K * SPLIT):
        ks = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=(rows[:, None] < M) & (ks[None, :] < K), other=0.0)
        b = tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=(ks[:, None] < K) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.atomic_add(sum_ptr + rows[:, None] * N + cols[None, :], acc, mask=(rows[:, None] < M) & (cols[None, :] < N), sem="relaxed")


@triton.jit
def rounded(sum_ptr, c_ptr, M, N, stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    c = tl.load(sum_ptr + rows[:, None] * N + cols[None, :], mask=mask)
    tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn, c.to(c_ptr.dtype.element_ty), mask=mask)
