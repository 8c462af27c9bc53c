# task: column_sum
# trick: none: each part waits for the one before it, drawn by a ticket
# verdict: accept
import triton
import triton.language as tl

GRID = "(cdiv(n_cols, BLOCK_COLS), SPLIT)"
SCRATCH = {"sum_ptr": ("float32", "(n_cols,)"), "flag_ptr": ("int32", "(cdiv(n_cols, BLOCK_COLS),)", 0), "ticket_ptr": ("int32", "(cdiv(n_cols, BLOCK_COLS),)", 0)}
CONFIG = {"BLOCK_ROWS": 32, "BLOCK_COLS": 32, "SPLIT": 4}


@triton.jit
def column_sum_kernel(
    x_ptr, y_ptr, sum_ptr, flag_ptr, ticket_ptr, x_stride, n_rows, n_cols,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr, SPLIT: tl.constexpr,
):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    mask = cols < n_cols
    part = tl.atomic_add(ticket_ptr + tl.program_id(0), 1)
    total = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    for start in range(part * BLOCK_ROWS, n_rows, BLOCK_ROWS * SPLIT):
        rows = start + tl.arange(0, BLOCK_ROWS)
        x = tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=(rows[:, None] < n_rows) & mask[None, :], other=0.0)
        total += tl.sum(x.to(tl.float32), axis=0)
    if part > 0:
        while tl.atomic_add(flag_ptr + tl.program_id(0), 0) < part:
            pass
        total += tl.load(sum_ptr + cols, mask=mask, other=0.0, cache_modifier=".cv")
    if part == SPLIT - 1:
        tl.store(y_ptr + cols, total.to(y_ptr.dtype.element_ty), mask=mask)
    else:
        tl.store(sum_ptr + cols, total, mask=mask)
    tl.debug_barrier()
    tl.atomic_add(flag_ptr + tl.program_id(0), 1)
