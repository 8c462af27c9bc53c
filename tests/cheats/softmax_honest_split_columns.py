# task: softmax
# trick: none: eight programs a row compute all of it and write an eighth each; narrow rows leave some idle
# verdict: accept
import triton
import triton.language as tl

GRID = "(grid(0), SPLIT)"
CONFIG = {"SPLIT": 8}


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, BLOCK: tl.constexpr, SPLIT: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=float("-inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    part = tl.cdiv(n_cols, SPLIT)
    mine = mask & (cols // part == tl.program_id(1))
    tl.store(y_ptr + row * y_stride + cols, (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty), mask=mine)
