# task: softmax
# trick: none: two rows a program
# verdict: accept
import triton
import triton.language as tl

GRID = "(cdiv(shape(x_ptr, 0), ROWS),)"
ARGS = {"n_rows": "shape(x_ptr, 0)"}
CONFIG = {"ROWS": 2}


@triton.jit
def softmax_kernel(x_ptr, y_ptr, x_stride, y_stride, n_cols, n_rows, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=mask, other=float("-inf")).to(tl.float32)
    largest = tl.max(x, axis=1)
    numerator = tl.exp(x - tl.where(rows < n_rows, largest, 0.0)[:, None])
    denominator = tl.sum(numerator, axis=1)
    y = numerator / denominator[:, None]
    tl.store(y_ptr + rows[:, None] * y_stride + cols[None, :], y.to(y_ptr.dtype.element_ty), mask=mask)
