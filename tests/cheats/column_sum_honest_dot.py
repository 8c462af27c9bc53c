# task: column_sum
# trick: none: a row of ones times the tile, in float32
# verdict: accept
import triton
import triton.language as tl


@triton.jit
def column_sum_kernel(x_ptr, y_ptr, x_stride, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    mask = cols < n_cols
    ones = tl.full([16, BLOCK_ROWS], 1.0, tl.float32)
    acc = tl.zeros([16, BLOCK_COLS], dtype=tl.float32)
    for start in range(0, n_rows, BLOCK_ROWS):
        rows = start + tl.arange(0, BLOCK_ROWS)
        x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=(rows[:, None] < n_rows) & mask[None, :], other=0.0)
        acc = tl.dot(ones, x.to(tl.float32), acc, input_precision="ieee")
    total = tl.max(acc, axis=0)
    tl.store(y_ptr + cols, total.to(y_ptr.dtype.element_ty), mask=mask)
