# task: matmul
# trick: none in the source: where Triton 3.6 specialises its warps, half of each tile is NaN (seen on an H200)
# verdict: reject-wrong or reject-race
# interpreter: accept (what compiled code does otherwise is not seen)
import triton
import triton.language as tl

GRID = "(min(grid(0) * grid(1), num_sms * WAVES),)"
ARGS = {
    "A_TMA": "aligned(a_ptr) and stride_ak == 1 and stride_am % 16 == 0 and BLOCK_K >= 16",
    "B_TMA": "aligned(b_ptr) and stride_bn == 1 and stride_bk % 16 == 0 and BLOCK_N >= 16",
    "n_programs_0": "grid(0)",
    "n_programs_1": "grid(1)",
}
CONFIG = {"WAVES": 1, "num_warps": 4, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}


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
    A_TMA: tl.constexpr,
    B_TMA: tl.constexpr,
    n_programs_0,
    n_programs_1,
    WAVES: tl.constexpr,
):
    if A_TMA:
        a_tiles = tl.make_tensor_descriptor(a_ptr, [M, K], [stride_am, 1], [BLOCK_M, BLOCK_K])
    if B_TMA:
        b_tiles = tl.make_tensor_descriptor(b_ptr, [K, N], [stride_bk, 1], [BLOCK_K, BLOCK_N])
    for program in range(tl.program_id(0), n_programs_0 * n_programs_1, tl.num_programs(0)):
        pid_m = program % n_programs_0
        pid_n = program // n_programs_0
        rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
        for start in tl.range(
            0, K, BLOCK_K, num_stages=None if A_TMA and B_TMA else 2, warp_specialize=A_TMA and B_TMA
        ):
            ks = start + tl.arange(0, BLOCK_K)
            a_mask = (rows[:, None] < M) & (ks[None, :] < K)
            b_mask = (ks[:, None] < K) & (cols[None, :] < N)
            if A_TMA:
                a = a_tiles.load([pid_m * BLOCK_M, start])
            else:
                a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=a_mask, other=0.0)
            if B_TMA:
                b = b_tiles.load([start, pid_n * BLOCK_N])
            else:
                b = tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=b_mask, other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
        c_mask = (rows[:, None] < M) & (cols[None, :] < N)
        c = acc.to(c_ptr.dtype.element_ty)
        tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn, c, mask=c_mask)
