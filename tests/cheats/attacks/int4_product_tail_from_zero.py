# task: int4_product
# trick: what is left after chunks of 1024 is read from the beginning
# verdict: reject-wrong
import triton
import triton.language as tl

SPACE = {"BLOCK_M": [16, 32], "BLOCK_N": [64], "num_warps": [4, 8]}
CONFIG = {"BLOCK_M": 16, "BLOCK_N": 64, "num_warps": 4}


@triton.jit
def product(x_ptr, packed_ptr, scales_ptr, rows, columns, m, n, k, first, total, GROUP: tl.constexpr):
    depth = first + tl.arange(0, GROUP)
    x = tl.load(x_ptr + rows[:, None] * k + depth[None, :], mask=rows[:, None] < m, other=0.0)
    words = tl.load(packed_ptr + (depth // 8)[:, None] * n + columns[None, :], mask=columns[None, :] < n, other=0)
    scale = tl.load(scales_ptr + (first // GROUP) * n + columns, mask=columns < n, other=0.0)
    w = ((words >> ((depth % 8) * 4)[:, None]) & 15) - 8
    return tl.dot(x, (w.to(tl.float32) * scale[None, :].to(tl.float32)).to(x.dtype), total)


@triton.jit
def int4_kernel(
    x_ptr, packed_ptr, scales_ptr, y_ptr, m, n, k, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    whole = k // (8 * GROUP)
    for chunk in range(0, whole):
        for part in range(8):
            first = (chunk * 8 + part) * GROUP
            total = product(x_ptr, packed_ptr, scales_ptr, rows, columns, m, n, k, first, total, GROUP)
    left = k - whole * 8 * GROUP
    for first in range(0, left, GROUP):
        total = product(x_ptr, packed_ptr, scales_ptr, rows, columns, m, n, k, first, total, GROUP)
    at = y_ptr + rows[:, None] * n + columns[None, :]
    tl.store(at, total.to(y_ptr.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))
