"""Root-mean-square normalisation in two looped passes over ROWS rows; the second may drop its lines from the cache."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

EPS = 1e-6


def reference(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, eps=EPS)


def get_inputs(rows=16384, cols=8192, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype), torch.randn(cols, dtype=dtype)]


SHAPES = [dict(rows=16384, cols=8192, dtype=torch.bfloat16)]
TEST_SHAPES = [dict(rows=16, cols=1008, dtype=torch.bfloat16), dict(rows=16, cols=5008, dtype=torch.bfloat16)]
SPACE = {
    "BLOCK": [512, 1024, 2048, 4096, 8192],
    "ROWS": [1, 2, 4],
    "STAGES": [1, 2, 3],
    "EVICT": [False, True],
    "num_warps": [2, 4, 8, 16],
}


def bytes_moved(rows, cols, dtype):
    return (2 * rows * cols + cols) * dtype.itemsize


@triton.jit
def rmsnorm_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    n_rows,
    n_cols,
    eps,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    STAGES: tl.constexpr,
    EVICT: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    row_mask = rows[:, None] < n_rows
    squares = tl.zeros([ROWS, BLOCK], dtype=tl.float32)
    for start in tl.range(0, n_cols, BLOCK, num_stages=STAGES):
        cols = start + tl.arange(0, BLOCK)
        mask = row_mask & (cols[None, :] < n_cols)
        x = tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0).to(tl.float32)
        squares += x * x
    rstd = 1.0 / tl.sqrt(tl.sum(squares, axis=1) / n_cols + eps)
    for start in tl.range(0, n_cols, BLOCK, num_stages=STAGES):
        cols = start + tl.arange(0, BLOCK)
        mask = row_mask & (cols[None, :] < n_cols)
        offsets = rows[:, None] * n_cols + cols[None, :]
        if EVICT:
            x = tl.load(x_ptr + offsets, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        else:
            x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        y = x * rstd[:, None] * weight[None, :]
        tl.store(y_ptr + offsets, y.to(y_ptr.dtype.element_ty), mask=mask)


def rmsnorm(x, weight):
    x = x.contiguous()
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)
    rmsnorm_kernel[grid](x, weight, y, n_rows, n_cols, EPS, BLOCK=2048, ROWS=1, STAGES=2, EVICT=False, num_warps=8)
    return y
