# task: matmul
# trick: the descriptor of the output claims one row more than there is, and stores it
# verdict: reject-static
# stage: launch
import triton
import triton.language as tl

DESCRIPTORS = {
    "a_desc": ("a_ptr", "(M, K)", "(stride_am, stride_ak)", "(BLOCK_M, BLOCK_K)", None),
    "b_desc": ("b_ptr", "(K, N)", "(stride_bk, stride_bn)", "(BLOCK_K, BLOCK_N)", None),
    "c_desc": ("c_ptr", "(M + 1, N)", "(stride_cm, stride_cn)", "(BLOCK_M, BLOCK_N)", None),
}


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, a_desc, b_desc, c_desc, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K)
        if a_desc is None:
            a_mask = (rows[:, None] < M) & (ks[None, :] < K)
            a = tl.load(a_ptr + rows[:, None] * stride_am + ks[None, :] * stride_ak, mask=a_mask, other=0.0)
        else:
            a = a_desc.load([tl.program_id(0) * BLOCK_M, start])
        if b_desc is None:
            b_mask = (ks[:, None] < K) & (cols[None, :] < N)
            b = tl.load(b_ptr + ks[:, None] * stride_bk + cols[None, :] * stride_bn, mask=b_mask, other=0.0)
        else:
            b = b_desc.load([start, tl.program_id(1) * BLOCK_N])
        acc = tl.dot(a, b, acc, input_precision="ieee")
    c = acc.to(c_ptr.dtype.element_ty)
    if c_desc is None:
        c_mask = (rows[:, None] < M) & (cols[None, :] < N)
        tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn, c, mask=c_mask)
    else:
        c_desc.store([tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N], c)
