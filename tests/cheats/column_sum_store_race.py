# task: column_sum
# trick: load, add, store from several programs, without atomics
# verdict: reject-wrong or reject-race
# interpreter: reject-race (its programs run one by one, so that the answer is right)
import triton
import triton.language as tl

GRID = "(cdiv(n_cols, BLOCK_COLS), cdiv(n_rows, BLOCK_ROWS))"
INIT = {"y_ptr": 0}
CONFIG = {"BLOCK_ROWS": 128, "BLOCK_COLS": 64}


@triton.jit
def column_sum_kernel(x_ptr, y_ptr, x_stride, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    rows = tl.program_id(1) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
    x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(x, axis=0)
    before = tl.load(y_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + cols, (before + total).to(y_ptr.dtype.element_ty), mask=cols < n_cols)
