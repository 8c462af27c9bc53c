# task: column_sum
# trick: none: parts to scratch, the program that arrives last adds them up
# verdict: accept
import triton
import triton.language as tl

GRID = "(cdiv(n_cols, BLOCK_COLS), SPLIT)"
SCRATCH = {"part_ptr": ("float32", "(SPLIT, n_cols)"), "count_ptr": ("int32", "(cdiv(n_cols, BLOCK_COLS),)", 0)}
CONFIG = {"BLOCK_ROWS": 32, "BLOCK_COLS": 32, "SPLIT": 4}


@triton.jit
def column_sum_kernel(
    x_ptr, y_ptr, part_ptr, count_ptr, x_stride, n_rows, n_cols,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr, SPLIT: tl.constexpr,
):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    mask = cols < n_cols
    part = tl.program_id(1)
    total = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    for start in range(part * BLOCK_ROWS, n_rows, BLOCK_ROWS * SPLIT):
        rows = start + tl.arange(0, BLOCK_ROWS)
        x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=(rows[:, None] < n_rows) & mask[None, :], other=0.0)
        total += tl.sum(x.to(tl.float32), axis=0)
    tl.store(part_ptr + part * n_cols + cols, total, mask=mask)
    tl.debug_barrier()
    arrived = tl.atomic_add(count_ptr + tl.program_id(0), 1)
    if arrived == SPLIT - 1:
        whole = tl.zeros([BLOCK_COLS], dtype=tl.float32)
        for other in range(SPLIT):
            whole += tl.load(part_ptr + other * n_cols + cols, mask=mask, other=0.0, cache_modifier=".cv")
        tl.store(y_ptr + cols, whole.to(y_ptr.dtype.element_ty), mask=mask)
