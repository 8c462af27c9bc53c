# task: silu_mul_fp8
# trick: columns from 12288 on take one half for the other
# verdict: reject-wrong
import triton
import triton.language as tl

GRID = "(cdiv(n_cols, BLOCK * PARTS), n_tokens)"
SPACE = {"BLOCK": [256, 512, 1024], "PARTS": [2, 4], "num_warps": [2, 4]}
CONFIG = {"BLOCK": 512, "PARTS": 2, "num_warps": 4}


@triton.jit
def silu_mul_kernel(x_ptr, scale_ptr, codes_ptr, x_stride, n_tokens, n_cols, BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """PARTS blocks of a row, a third of the widest."""
    row = tl.program_id(1)
    factor = 1.0 / tl.load(scale_ptr)
    first = tl.program_id(0) * PARTS * BLOCK
    for start in range(first, min(first + PARTS * BLOCK, n_cols), BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        gate = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0.0).to(tl.float32)
        up_at = tl.where(cols < 12288, n_cols + cols, cols)
        up = tl.load(x_ptr + row * x_stride + up_at, mask=mask, other=0.0).to(tl.float32)
        codes = gate * tl.sigmoid(gate) * up * factor
        tl.store(codes_ptr + row * n_cols + cols, codes.to(codes_ptr.dtype.element_ty), mask=mask)
