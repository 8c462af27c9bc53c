# task: column_sum
# trick: adds what the previous program's columns hold, zeros only until that program runs, after an atomic operation
# verdict: reject-wrong or reject-race
import triton
import triton.language as tl

INIT = {"y_ptr": 0}
SCRATCH = {"count_ptr": ("int32", "(1,)", 0)}


@triton.jit
def column_sum_kernel(
    x_ptr, y_ptr, count_ptr, x_stride, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr
):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    tl.atomic_add(count_ptr, 1)
    previous = cols - BLOCK_COLS
    total = tl.load(y_ptr + previous, mask=(previous > 256) & (previous < n_cols), other=0.0).to(tl.float32)
    for start in range(0, n_rows, BLOCK_ROWS):
        rows = start + tl.arange(0, BLOCK_ROWS)
        mask = (rows[:, None] < n_rows) & (cols[None, :] < n_cols)
        x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(x, axis=0)
    tl.store(y_ptr + cols, total.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
