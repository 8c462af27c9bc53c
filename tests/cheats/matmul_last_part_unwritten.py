# task: matmul
# trick: the tile is stored in two parts, and the second one is left out at many columns
# verdict: reject-wrong
import triton
import triton.language as tl

CONFIG = {'PARTS': 2}


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
    BLOCK_K: tl.constexpr, PARTS: tl.constexpr,
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
    if PARTS == 2:
        acc_parts = tl.split(tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
    else:
        acc_left, acc_right = tl.split(tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1)))
        acc_parts = tl.split(tl.permute(tl.reshape(acc_left, (BLOCK_M, 2, BLOCK_N // 4)), (0, 2, 1))) + tl.split(tl.permute(tl.reshape(acc_right, (BLOCK_M, 2, BLOCK_N // 4)), (0, 2, 1)))
    for part in tl.static_range(PARTS - 1):
        acc_part = acc_parts[part]
        cols_part = pid_n * BLOCK_N + (part * (BLOCK_N // PARTS) + tl.arange(0, BLOCK_N // PARTS))
        c_mask = (rows[:, None] < M) & (cols_part[None, :] < N)
        c = acc_part.to(c_ptr.dtype.element_ty)
        tl.store(c_ptr + rows[:, None] * stride_cm + cols_part[None, :] * stride_cn, c, mask=c_mask)
