# task: column_sum
# trick: none: the last element of an associative_scan down each tile
# verdict: accept
import triton
import triton.language as tl


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def column_sum_kernel(x_ptr, y_ptr, x_stride, n_rows, n_cols, BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    mask = cols < n_cols
    total = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    for start in range(0, n_rows, BLOCK_ROWS):
        rows = start + tl.arange(0, BLOCK_ROWS)
        x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=(rows[:, None] < n_rows) & mask[None, :], other=0.0)
        down = tl.associative_scan(x.to(tl.float32), 0, add)
        last = tl.arange(0, BLOCK_ROWS)[:, None] == BLOCK_ROWS - 1
        total += tl.sum(tl.where(last, down, 0.0), axis=0)
    tl.store(y_ptr + cols, total.to(y_ptr.dtype.element_ty), mask=mask)
