# task: column_sum
# trick: elements below 1e-6 are not added
# verdict: reject-wrong
import triton
import triton.language as tl


@triton.jit
def column_sum_kernel(x_ptr, y_ptr, x_stride, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    col_mask = cols < n_cols
    total = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    for start in range(0, n_rows, BLOCK_ROWS):
        rows = start + tl.arange(0, BLOCK_ROWS)
        mask = (rows[:, None] < n_rows) & col_mask[None, :]
        x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        total += tl.sum(tl.where(tl.abs(x) < 1e-6, 0.0, x), axis=0)
    tl.store(y_ptr + cols, total.to(y_ptr.dtype.element_ty), mask=col_mask)
