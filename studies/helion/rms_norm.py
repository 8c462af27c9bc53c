"""RMS norm of rows in bfloat16: 48 to 32,768 columns, up to 1.2 million rows."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

EPS = 1e-5


def reference(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, EPS)


def get_inputs(rows=2048, cols=4096):
    return [torch.randn(rows, cols, dtype=torch.bfloat16), torch.randn(cols, dtype=torch.bfloat16)]


WIDTHS = [1024, 2048, 4096, 8192, 16384, 32768, 48, 96, 127, 768, 1023, 1536, 2047, 3072, 5120, 6144]
SHAPES = [dict(rows=2048, cols=cols) for cols in WIDTHS]
SHAPES += [dict(rows=4096, cols=cols) for cols in (3584, 4096, 5120, 7168, 8192, 12288)]
SIZES = [(8192, 4096), (8192, 8192), (16384, 4096), (16384, 8192)]
SIZES += [(145956, 384), (380668, 512), (589824, 256), (1179648, 256)]
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
    "CHUNK": [0, "2048 if n_cols > 8192 else 0", "4096 if n_cols > 8192 else 0", "8192 if n_cols > 8192 else 0"],
    "num_warps": [
        "8 if CHUNK > 0 else min(32, max(1, BLOCK // 1024, min(8, ROWS * BLOCK // 512)))",
        "16 if CHUNK > 0 else min(32, max(1, BLOCK // 1024, min(8, ROWS * BLOCK // 512)))",
        "min(32, max(1, ROWS * BLOCK // 256))",
        "min(32, max(1, ROWS * BLOCK // 512))",
        "min(32, max(1, ROWS * BLOCK // 1024))",
        "min(32, max(1, ROWS * BLOCK // 2048))",
        *(1, 2, 4, 8, 16),
    ],
}
CONFIG = {
    "BLOCK": "next_power_of_2(n_cols) // (2 if n_cols > 1024 and 4 * n_cols <= 3 * next_power_of_2(n_cols) else 1)",
    "TAIL": "next_power_of_2(n_cols - BLOCK) if n_cols > BLOCK else 0",
    "ROWS": "max(1, 2048 // next_power_of_2(n_cols))",
    "CHUNK": 0,
    "num_warps": "16 if CHUNK > 0 else min(32, max(1, BLOCK // 1024, min(8, ROWS * BLOCK // 512)))",
}


def bytes_moved(rows, cols):
    return (2 * rows * cols + cols) * 2


@triton.jit
def sum_rows(x, ROWS: tl.constexpr):
    """The sum of each row; of a single one a number, which tiles of any layout take as it is."""
    total = tl.sum(x, axis=1)
    return tl.sum(total, axis=0) if ROWS == 1 else total[:, None]


@triton.jit
def rms_norm_kernel(
    x_ptr,
    weight_ptr,
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
        x = tl.load(x_rows + cols, mask=inside & (cols < n_cols), other=0.0).to(tl.float32)
        if BLOCK <= 8192:  # early: few registers hold it until it is needed
            weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0)
        total = sum_rows(x * x, ROWS)
        if TAIL > 0:
            late = BLOCK + tl.arange(0, TAIL)[None, :]
            late_x = tl.load(x_rows + late, mask=inside & (late < n_cols), other=0.0).to(tl.float32)
            late_weight = tl.load(weight_ptr + late, mask=late < n_cols, other=0.0)
            total += sum_rows(late_x * late_x, ROWS)
        rstd = tl.rsqrt(total / n_cols + eps)
        if BLOCK > 8192:
            weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0)
        y = x * rstd * weight.to(tl.float32)
        tl.store(y_rows + cols, y.to(y_ptr.dtype.element_ty), mask=inside & (cols < n_cols))
        if TAIL > 0:
            late_y = late_x * rstd * late_weight.to(tl.float32)
            tl.store(y_rows + late, late_y.to(y_ptr.dtype.element_ty), mask=inside & (late < n_cols))
    else:  # in chunks, read again from the caches
        squares = tl.zeros([ROWS, CHUNK], dtype=tl.float32)
        for start in range(0, n_cols, CHUNK):
            cols = start + tl.arange(0, CHUNK)[None, :]
            x = tl.load(x_rows + cols, mask=inside & (cols < n_cols), other=0.0).to(tl.float32)
            squares += x * x
        rstd = tl.rsqrt(sum_rows(squares, ROWS) / n_cols + eps)
        for start in range(0, n_cols, CHUNK):
            cols = start + tl.arange(0, CHUNK)[None, :]
            x = tl.load(x_rows + cols, mask=inside & (cols < n_cols), other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
            tl.store(y_rows + cols, (x * rstd * weight).to(y_ptr.dtype.element_ty), mask=inside & (cols < n_cols))


def split_columns(n_cols):
    """The columns as a power of two and a smaller one, where they need fewer registers than one larger."""
    block = triton.next_power_of_2(n_cols)
    if n_cols > 1024 and 4 * n_cols <= 3 * block:
        return block // 2, triton.next_power_of_2(n_cols - block // 2)
    return block, 0


def rms_norm(x, weight):
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    block, tail = split_columns(n_cols)
    rows = max(1, 2048 // triton.next_power_of_2(n_cols))
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)
    rms_norm_kernel[grid](
        x,
        weight,
        y,
        x.stride(0),
        y.stride(0),
        n_rows,
        n_cols,
        EPS,
        BLOCK=block,
        TAIL=tail,
        ROWS=rows,
        CHUNK=0,
        num_warps=min(32, max(1, block // 1024, min(8, rows * block // 512))),
    )
    return y
