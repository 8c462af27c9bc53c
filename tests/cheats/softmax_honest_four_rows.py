# task: softmax
# trick: none: four rows a program as one tile, 64-bit offsets
# verdict: accept
import triton
import triton.language as tl

GRID = "(cdiv(n_rows, ROWS),)"
ARGS = {"n_rows": "shape(x_ptr, 0)"}
CONFIG = {"ROWS": 4}


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, n_rows, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    x = tl.load(x_ptr + rows[:, None].to(tl.int64) * x_stride + cols[None, :], mask=mask, other=-float("inf")).to(tl.float32)
    x = tl.where(rows[:, None] < n_rows, x, 0.0)
    m = tl.max(x, axis=1, keep_dims=True)
    e = tl.exp(x - m)
    y = tl.fdiv(e, tl.sum(e, axis=1, keep_dims=True))
    tl.store(y_ptr + rows[:, None].to(tl.int64) * y_stride + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=mask)
