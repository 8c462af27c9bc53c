# task: column_sum
# trick: none: one row after the other
# verdict: accept
import triton
import triton.language as tl


@triton.jit
def column_sum_kernel(x_ptr, y_ptr, x_stride, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    total = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    for row in range(0, n_rows):
        total += tl.load(x_ptr + row * x_stride + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
    tl.store(y_ptr + cols, total.to(y_ptr.dtype.element_ty), mask=cols < n_cols)
