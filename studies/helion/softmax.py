"""Softmax of rows in float16: 98 widths in steps of 128, and two that are wide."""

import torch
import triton
import triton.language as tl


def reference(x):
    return torch.softmax(x, dim=-1)


def get_inputs(rows=4096, cols=1024):
    return [torch.randn(rows, cols, dtype=torch.float16)]


SHAPES = [dict(rows=4096, cols=128 * i) for i in range(2, 100)]
SHAPES += [dict(rows=4096, cols=16384), dict(rows=2048, cols=32768)]
TEST_SHAPES = [dict(rows=3, cols=1000), dict(rows=1, cols=129)]
DOMAIN = {"x": "finite"}
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
    "CHUNK": 0,
    "num_warps": "16 if CHUNK > 0 else min(32, max(1, BLOCK // 1024, min(8, ROWS * BLOCK // 512)))",
}


def bytes_moved(rows, cols):
    return 4 * rows * cols


@triton.jit
def sum_rows(x, ROWS: tl.constexpr):
    """The sum of each row; of a single one a number, which tiles of any layout take as it is."""
    total = tl.sum(x, axis=1)
    return tl.sum(total, axis=0) if ROWS == 1 else total[:, None]


@triton.jit
def max_rows(x, ROWS: tl.constexpr):
    """The largest of each row; of a single one a number, which tiles of any layout take as it is."""
    peak = tl.max(x, axis=1)
    return tl.max(peak, axis=0) if ROWS == 1 else peak[:, None]


@triton.jit
def softmax_kernel(
    x_ptr,
    y_ptr,
    x_stride,
    y_stride,
    n_rows,
    n_cols,
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
        x = tl.load(x_rows + cols, mask=mask, other=float("-inf")).to(tl.float32)
        peak = max_rows(x, ROWS)
        if TAIL > 0:
            late = BLOCK + tl.arange(0, TAIL)[None, :]
            late_mask = inside & (late < n_cols)
            late_x = tl.load(x_rows + late, mask=late_mask, other=float("-inf")).to(tl.float32)
            peak = tl.maximum(peak, max_rows(late_x, ROWS))
        power = tl.exp(x - peak)
        total = sum_rows(power, ROWS)
        if TAIL > 0:
            late_power = tl.exp(late_x - peak)
            total += sum_rows(late_power, ROWS)
        factor = 1.0 / total
        tl.store(y_rows + cols, (power * factor).to(y_ptr.dtype.element_ty), mask=mask)
        if TAIL > 0:
            tl.store(y_rows + late, (late_power * factor).to(y_ptr.dtype.element_ty), mask=late_mask)
    else:  # in chunks, read twice more from the caches
        peaks = tl.full([ROWS, CHUNK], float("-inf"), dtype=tl.float32)
        for start in range(0, n_cols, CHUNK):
            cols = start + tl.arange(0, CHUNK)[None, :]
            x = tl.load(x_rows + cols, mask=inside & (cols < n_cols), other=float("-inf")).to(tl.float32)
            peaks = tl.maximum(peaks, x)
        peak = max_rows(peaks, ROWS)
        powers = tl.zeros([ROWS, CHUNK], dtype=tl.float32)
        for start in range(0, n_cols, CHUNK):
            cols = start + tl.arange(0, CHUNK)[None, :]
            x = tl.load(x_rows + cols, mask=inside & (cols < n_cols), other=float("-inf")).to(tl.float32)
            powers += tl.exp(x - peak)
        factor = 1.0 / sum_rows(powers, ROWS)
        for start in range(0, n_cols, CHUNK):
            cols = start + tl.arange(0, CHUNK)[None, :]
            mask = inside & (cols < n_cols)
            x = tl.load(x_rows + cols, mask=mask, other=float("-inf")).to(tl.float32)
            tl.store(y_rows + cols, (tl.exp(x - peak) * factor).to(y_ptr.dtype.element_ty), mask=mask)


def split_columns(n_cols):
    """The columns as a power of two and a smaller one, where they need fewer registers than one larger."""
    block = triton.next_power_of_2(n_cols)
    if n_cols > 1024 and 4 * n_cols <= 3 * block:
        return block // 2, triton.next_power_of_2(n_cols - block // 2)
    return block, 0


def softmax(x):
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    block, tail = split_columns(n_cols)
    rows = max(1, 2048 // triton.next_power_of_2(n_cols))
    grid = lambda meta: (triton.cdiv(n_rows, meta["ROWS"]),)
    softmax_kernel[grid](
        x,
        y,
        x.stride(0),
        y.stride(0),
        n_rows,
        n_cols,
        BLOCK=block,
        TAIL=tail,
        ROWS=rows,
        CHUNK=0,
        num_warps=min(32, max(1, block // 1024, min(8, rows * block // 512))),
    )
    return y
