# task: column_sum
# trick: none: compensated summation
# verdict: accept
import triton
import triton.language as tl


@triton.jit
def column_sum_kernel(x_ptr, y_ptr, x_stride, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    ok = cols < n_cols
    s = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    e = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    for start in range(0, n_rows, BLOCK_ROWS):
        rows = start + tl.arange(0, BLOCK_ROWS)
        x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=(rows[:, None] < n_rows) & ok[None, :], other=0.0)
        y = tl.sum(x.to(tl.float32), axis=0) - e
        t = s + y
        e = (t - s) - y
        s = t
    tl.store(y_ptr + cols, s.to(y_ptr.dtype.element_ty), mask=ok)
