"""scaled_mm with its inner size split over programs, whose parts a second launch adds up: `optimize --start` this."""

import triton
import triton.language as tl

GRID = {
    "scaled_mm_kernel": "(cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N), SPLIT)",
    "add_parts": "(cdiv(M * N, BLOCK),)",
}
SCRATCH = {"parts_ptr": ("float32", "(SPLIT, M, N)")}
LAUNCHES = ["scaled_mm_kernel", "add_parts"]
SPACE = {
    "SPLIT": [2, 3, 4, 6, 8, "max(2, num_sms // cdiv(N, BLOCK_N))", "max(2, 2 * num_sms // cdiv(N, BLOCK_N))"],
    "BLOCK_M": ["min(64, max(16, next_power_of_2(M)))"],
    "BLOCK_N": [16, 32, 64, 128],
    "BLOCK_K": [128, 256, 512],
    "EXACT": [32, 64, 128],
    "scaled_mm_kernel.num_warps": [1, 2, 4, 8],
    "scaled_mm_kernel.num_stages": [2, 3, 4, 5, 6],
    "BLOCK": [256, 512, 1024],
    "add_parts.num_warps": [1, 2, 4],
}
CONFIG = {
    "SPLIT": "max(2, num_sms // cdiv(N, BLOCK_N))",
    "BLOCK_M": "min(64, max(16, next_power_of_2(M)))",
    "BLOCK_N": 64,
    "BLOCK_K": 128,
    "EXACT": 128,
    "scaled_mm_kernel.num_warps": 4,
    "scaled_mm_kernel.num_stages": 6,
    "BLOCK": 512,
    "add_parts.num_warps": 2,
}


@triton.jit
def scaled_mm_kernel(
    a_ptr,
    b_ptr,
    parts_ptr,
    M,
    N,
    K,
    a_stride,
    b_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EXACT: tl.constexpr,
    SPLIT: tl.constexpr,
):
    tiles_m = tl.cdiv(M, BLOCK_M)
    rows = tl.program_id(0) % tiles_m * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(0) // tiles_m * BLOCK_N + tl.arange(0, BLOCK_N)
    ks = tl.arange(0, BLOCK_K)
    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT)
    first = tl.program_id(1) * steps * BLOCK_K
    last = min(K, first + steps * BLOCK_K)
    a_at = a_ptr + rows[None, :] * a_stride + ks[:, None]
    b_at = b_ptr + cols[:, None] * b_stride + ks[None, :]
    total = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
    for start in range(first, last, BLOCK_K):
        b = tl.load(b_at + start, mask=(cols[:, None] < N) & (start + ks[None, :] < K), other=0.0)
        a = tl.load(a_at + start, mask=(rows[None, :] < M) & (start + ks[:, None] < K), other=0.0)
        total = tl.dot(b, a, total, max_num_imprecise_acc=EXACT)
    mask = (cols[:, None] < N) & (rows[None, :] < M)
    tl.store(parts_ptr + (tl.program_id(1) * M + rows[None, :]) * N + cols[:, None], total, mask=mask)


@triton.jit
def add_parts(parts_ptr, scale_a_ptr, scale_b_ptr, bias_ptr, c_ptr, M, N, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(parts_ptr + part * M * N + at, mask=at < M * N, other=0.0)
    bias = tl.load(bias_ptr + at % N, mask=at < M * N, other=0.0).to(tl.float32)
    c = total * (tl.load(scale_a_ptr) * tl.load(scale_b_ptr)) + bias
    tl.store(c_ptr + at, c.to(c_ptr.dtype.element_ty), mask=at < M * N)
