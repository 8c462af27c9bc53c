# task: column_sum
# trick: adds what the next program's columns hold, which are zeros only until that program runs; behind column 256
# verdict: reject-wrong or reject-race
# interpreter: reject-race (programs run one by one, each before the one whose columns it loads)
import triton
import triton.language as tl

INIT = {"y_ptr": 0}


@triton.jit
def column_sum_kernel(x_ptr, y_ptr, x_stride, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    following = cols + BLOCK_COLS
    total = tl.load(y_ptr + following, mask=(following < n_cols) & (following > 256), other=0.0).to(tl.float32)
    for start in range(0, n_rows, BLOCK_ROWS):
        rows = start + tl.arange(0, BLOCK_ROWS)
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(x, axis=0)
    tl.store(y_ptr + cols, total.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
