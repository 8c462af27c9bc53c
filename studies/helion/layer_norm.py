"""Layer norm of rows in float16: 30 widths in steps of 512, and eight that models have."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

EPS = 1e-5


def reference(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, EPS)


def get_inputs(rows=4096, cols=1024):
    return [torch.randn(size, dtype=torch.float16) for size in ((rows, cols), (cols,), (cols,))]


SHAPES = [dict(rows=4096, cols=512 * i) for i in range(2, 32)]
SIZES = [
    (2048, 3584),
    (8192, 4096),
    (8192, 5120),
    (8192, 7168),
    (2048, 8192),
    (4096, 16384),
    (1024, 36864),
    (1152, 36864),
]
SHAPES += [dict(rows=rows, cols=cols) for rows, cols in SIZES]
TEST_SHAPES = [dict(rows=3, cols=1000), dict(rows=1, cols=129)]
SPACE = {
    "BLOCK": [
        "next_power_of_2(n_cols)",
        "next_power_of_2(n_cols) // (2 if n_cols > 1024 and 4 * n_cols <= 3 * next_power_of_2(n_cols) else 1)",
    ],
    "TAIL": ["next_power_of_2(n_cols - BLOCK) if n_cols > BLOCK else 0"],
    "ROWS": [
        1,
        2,
        "max(1, 1024 // next_power_of_2(n_cols))",
        "max(1, 2048 // next_power_of_2(n_cols))",
        "max(1, 4096 // next_power_of_2(n_cols))",
    ],
    "CHUNK": [0, "2048 if n_cols > 12288 else 0", "4096 if n_cols > 12288 else 0", "8192 if n_cols > 12288 else 0"],
    "num_warps": [
        "8 if CHUNK > 0 else min(32, max(1, BLOCK // 1024, min(8, ROWS * BLOCK // 512)))",
        "16 if CHUNK > 0 else min(32, max(1, BLOCK // 1024, min(8, ROWS * BLOCK // 512)))",
        "min(32, max(1, ROWS * BLOCK // 256))",
        "min(32, max(1, ROWS * BLOCK // 512))",
        "min(32, max(1, ROWS * BLOCK // 1024))",
        "min(32, max(1, ROWS * BLOCK // 2048))",
        *(1, 2, 4, 8, 16, 32),
    ],
}
CONFIG = {
    "BLOCK": "next_power_of_2(n_cols) // (2 if n_cols > 1024 and 4 * n_cols <= 3 * next_power_of_2(n_cols) else 1)",
    "TAIL": "next_power_of_2(n_cols - BLOCK) if n_cols > BLOCK else 0",
    "ROWS": "max(1, 2048 // next_power_of_2(n_cols))",
    "CHUNK": "8192 if n_cols > 16384 else 0",
    "num_warps": "16 if CHUNK > 0 else min(32, max(1, BLOCK // 1024, min(8, ROWS * BLOCK // 512)))",
}


def bytes_moved(rows, cols):
    return (2 * rows + 2) * cols * 2


@triton.jit
def sum_rows(x, ROWS: tl.constexpr):
    """The sum of each row; of a single one a number, which tiles of any layout take as it is."""
    total = tl.sum(x, axis=1)
    return tl.sum(total, axis=0) if ROWS == 1 else total[:, None]


@triton.jit
def layer_norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    x_stride,
    y_stride,
    n_rows,
    n_cols,
    eps,
    BLOCK: tl.constexpr,
    TAIL: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    x_rows = x_ptr + rows * x_stride
    y_rows = y_ptr + rows * y_stride
    inside = rows < n_rows
    if CHUNK == 0:  # whole rows in registers: BLOCK columns, then TAIL more
        cols = tl.arange(0, BLOCK)[None, :]
        mask = inside & (cols < n_cols)
        x = tl.load(x_rows + cols, mask=mask, other=0.0).to(tl.float32)
        if BLOCK <= 4096:  # early: few registers hold them until they are needed
            weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0)
            bias = tl.load(bias_ptr + cols, mask=cols < n_cols, other=0.0)
        total = sum_rows(x, ROWS)
        if TAIL > 0:
            late = BLOCK + tl.arange(0, TAIL)[None, :]
            late_mask = inside & (late < n_cols)
            late_x = tl.load(x_rows + late, mask=late_mask, other=0.0).to(tl.float32)
            late_weight = tl.load(weight_ptr + late, mask=late < n_cols, other=0.0)
            late_bias = tl.load(bias_ptr + late, mask=late < n_cols, other=0.0)
            total += sum_rows(late_x, ROWS)
        mean = total / n_cols
        x = tl.where(mask, x - mean, 0.0)
        squares = sum_rows(x * x, ROWS)
        if TAIL > 0:
            late_x = tl.where(late_mask, late_x - mean, 0.0)
            squares += sum_rows(late_x * late_x, ROWS)
        rstd = tl.rsqrt(squares / n_cols + eps)
        if BLOCK > 4096:
            weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0)
            bias = tl.load(bias_ptr + cols, mask=cols < n_cols, other=0.0)
        y = x * rstd * weight.to(tl.float32) + bias.to(tl.float32)
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=mask)
        if TAIL > 0:
            late_y = late_x * rstd * late_weight.to(tl.float32) + late_bias.to(tl.float32)
            tl.store(y_rows + late, late_y.to(y_ptr.dtype.element_ty), mask=late_mask)
    else:  # in chunks, read twice more from the caches
        totals = tl.zeros([ROWS, CHUNK], dtype=tl.float32)
        for start in range(0, n_cols, CHUNK):
            cols = start + tl.arange(0, CHUNK)[None, :]
            totals += tl.load(x_rows + cols, mask=inside & (cols < n_cols), other=0.0).to(tl.float32)
        mean = sum_rows(totals, ROWS) / n_cols
        squares = tl.zeros([ROWS, CHUNK], dtype=tl.float32)
        for start in range(0, n_cols, CHUNK):
            cols = start + tl.arange(0, CHUNK)[None, :]
            mask = inside & (cols < n_cols)
            x = tl.load(x_rows + cols, mask=mask, other=0.0).to(tl.float32)
            x = tl.where(mask, x - mean, 0.0)
            squares += x * x
        rstd = tl.rsqrt(sum_rows(squares, ROWS) / n_cols + eps)
        for start in range(0, n_cols, CHUNK):
            cols = start + tl.arange(0, CHUNK)[None, :]
            mask = inside & (cols < n_cols)
            x = tl.load(x_rows + cols, mask=mask, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            bias = tl.load(bias_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            y = (x - mean) * rstd * weight + bias
            tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=mask)


def split_columns(n_cols):
    """The columns as a power of two and a smaller one, where they need fewer registers than one larger."""
    block = triton.next_power_of_2(n_cols)
    if n_cols > 1024 and 4 * n_cols <= 3 * block:
        return block // 2, triton.next_power_of_2(n_cols - block // 2)
    return block, 0


def layer_norm(x, weight, bias):
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    block, tail = split_columns(n_cols)
    rows = max(1, 2048 // triton.next_power_of_2(n_cols))
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)
    layer_norm_kernel[grid](
        x,
        weight,
        bias,
        y,
        x.stride(0),
        y.stride(0),
        n_rows,
        n_cols,
        EPS,
        BLOCK=block,
        TAIL=tail,
        ROWS=rows,
        CHUNK=8192 if n_cols > 16384 else 0,
        num_warps=16 if n_cols > 16384 else min(32, max(1, block // 1024, min(8, rows * block // 512))),
    )
    return y
