"""x @ w.T with 4-bit weights: eight to an int32 along the depth, a scale for each 128, zero at 8."""

import torch
import triton
import triton.language as tl

GROUP = 128


def unpack(packed, scales):
    shifts = torch.arange(0, 32, 4, device=packed.device, dtype=packed.dtype)
    w = ((packed[:, None, :] >> shifts[None, :, None]) & 15).reshape(-1, packed.shape[1]) - 8
    return w.to(scales.dtype) * scales.repeat_interleave(GROUP, dim=0)


def reference(x, packed, scales):
    return x @ unpack(packed, scales)


def get_inputs(m=512, n=14336, k=4096, dtype=torch.bfloat16):
    packed = torch.randint(-(2**31), 2**31, (k // 8, n), dtype=torch.int32)
    return [torch.randn(m, k, dtype=dtype), packed, torch.rand(k // GROUP, n, dtype=dtype) * 0.02 + 0.001]


SHAPES = [dict(m=16, n=14336, k=4096), dict(m=512, n=14336, k=4096)]
TEST_SHAPES = [dict(m=3, n=48, k=128), dict(m=70, n=130, k=384), dict(m=1, n=16, k=256)]
SPACE = {
    "BLOCK_M": [16, 32, 64, 128], "BLOCK_N": [32, 64, 128, 256], "BLOCK_K": [32, 64, 128],
    "num_warps": [4, 8], "num_stages": [2, 3, 4, 5],
}  # fmt: skip


def bytes_moved(m, n, k, dtype):
    return k * n // 2 + (k // GROUP * n + m * k + m * n) * dtype.itemsize


def flops(m, n, k):
    return 2 * m * n * k


@triton.jit
def int4_kernel(
    x_ptr, packed_ptr, scales_ptr, y_ptr, m, n, k, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for first in range(0, k, BLOCK_K):
        depth = first + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + rows[:, None] * k + depth[None, :], mask=rows[:, None] < m, other=0.0)
        words = tl.load(packed_ptr + (depth // 8)[:, None] * n + columns[None, :], mask=columns[None, :] < n, other=0)
        scale = tl.load(scales_ptr + (first // GROUP) * n + columns, mask=columns < n, other=0.0)
        w = ((words >> ((depth % 8) * 4)[:, None]) & 15) - 8
        total = tl.dot(x, (w.to(tl.float32) * scale[None, :].to(tl.float32)).to(x.dtype), total)
    at = y_ptr + rows[:, None] * n + columns[None, :]
    tl.store(at, total.to(y_ptr.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))


def int4_product(x, packed, scales):
    (m, k), n = x.shape, packed.shape[1]
    y = torch.empty(m, n, dtype=x.dtype, device=x.device)
    grid = lambda meta: (triton.cdiv(m, meta["BLOCK_M"]), triton.cdiv(n, meta["BLOCK_N"]))
    int4_kernel[grid](
        x, packed, scales, y, m, n, k, GROUP=GROUP, BLOCK_M=16, BLOCK_N=64, BLOCK_K=64, num_warps=4, num_stages=3
    )
    return y
