"""A matrix transposed, tile by tile."""

import torch
import triton
import triton.language as tl


def reference(x):
    return x.t().contiguous()


def get_inputs(rows=16384, cols=8192, dtype=torch.float32):
    return [torch.randn(rows, cols, dtype=dtype)]


SHAPES = [dict(rows=16384, cols=8192, dtype=torch.float16)]
TEST_SHAPES = [dict(rows=33, cols=70), dict(rows=5, cols=64, dtype=torch.float16), dict(rows=1, cols=1)]
SPACE = {"ROWS": [16, 32, 64, 128], "COLS": [16, 32, 64, 128], "num_warps": [2, 4, 8]}


@triton.jit
def transpose_kernel(x_ptr, y_ptr, n_rows, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * COLS + tl.arange(0, COLS)
    x = tl.load(x_ptr + r[:, None] * n_cols + c[None, :], mask=(r[:, None] < n_rows) & (c[None, :] < n_cols))
    tl.store(y_ptr + c[:, None] * n_rows + r[None, :], tl.trans(x), mask=(c[:, None] < n_cols) & (r[None, :] < n_rows))


def transpose(x):
    rows, cols = x.shape
    y = torch.empty(cols, rows, device=x.device, dtype=x.dtype)
    grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]), triton.cdiv(cols, meta["COLS"]))
    transpose_kernel[grid](x, y, rows, cols, ROWS=32, COLS=32, num_warps=4)
    return y
