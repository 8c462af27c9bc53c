# task: column_sum
# trick: none: a transposed tile, summed along its other axis
# verdict: accept
import triton
import triton.language as tl


@triton.jit
def column_sum_kernel(x_ptr, y_ptr, x_stride, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    mask = cols < n_cols
    acc = tl.zeros([BLOCK_COLS, BLOCK_ROWS], dtype=tl.float32)
    for start in tl.range(0, n_rows, BLOCK_ROWS):
        rows = start + tl.arange(0, BLOCK_ROWS)
        x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=(rows[:, None] < n_rows) & mask[None, :], other=0.0)
        acc += tl.trans(x.to(tl.float32))
    tl.store(y_ptr + cols, tl.sum(acc, axis=1).to(y_ptr.dtype.element_ty), mask=mask)
