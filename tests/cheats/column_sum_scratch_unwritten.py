# task: column_sum
# trick: a part of the scratch that nobody wrote is taken to be zero
# verdict: reject-wrong
import triton
import triton.language as tl

LAUNCHES = ["partial", "finish"]
GRID = {"partial": "(cdiv(n_cols, BLOCK_COLS), SPLIT)", "finish": "(cdiv(n_cols, BLOCK_COLS),)"}
SCRATCH = {"partial_ptr": ("float32", "(SPLIT + 1, n_cols)")}
CONFIG = {"BLOCK_ROWS": 64, "BLOCK_COLS": 64, "SPLIT": 4}


@triton.jit
def partial(
    x_ptr, partial_ptr, x_stride, n_rows, n_cols,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLS: tl.constexpr, SPLIT: tl.constexpr,
):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    part = tl.program_id(1)
    col_mask = cols < n_cols
    total = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    for start in range(part * BLOCK_ROWS, n_rows, BLOCK_ROWS * SPLIT):
        rows = start + tl.arange(0, BLOCK_ROWS)
        mask = (rows[:, None] < n_rows) & col_mask[None, :]
        total += tl.sum(tl.load(x_ptr + rows[:, None] * x_stride + cols[None, :], mask=mask, other=0.0).to(tl.float32), axis=0)
    tl.store(partial_ptr + part * n_cols + cols, total, mask=col_mask)


@triton.jit
def finish(y_ptr, partial_ptr, n_cols, BLOCK_COLS: tl.constexpr, SPLIT: tl.constexpr):
    cols = tl.program_id(0) * BLOCK_COLS + tl.arange(0, BLOCK_COLS)
    mask = cols < n_cols
    total = tl.zeros([BLOCK_COLS], dtype=tl.float32)
    for part in range(SPLIT + 1):
        total += tl.load(partial_ptr + part * n_cols + cols, mask=mask, other=0.0)
    tl.store(y_ptr + cols, total.to(y_ptr.dtype.element_ty), mask=mask)
