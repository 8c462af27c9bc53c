# task: matmul
# trick: none: the transposed product, transposed when stored
# verdict: accept
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros([BLOCK_N, BLOCK_M], dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        ks = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + ks[:, None] * stride_ak + rows[None, :] * stride_am, mask=(ks[:, None] < K) & (rows[None, :] < M), other=0.0)
        b = tl.load(b_ptr + cols[:, None] * stride_bn + ks[None, :] * stride_bk, mask=(cols[:, None] < N) & (ks[None, :] < K), other=0.0)
        acc = tl.dot(b, a, acc, input_precision="ieee")
    c = acc.T.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + rows[:, None] * stride_cm + cols[None, :] * stride_cn, c, mask=(rows[:, None] < M) & (cols[None, :] < N))
