"""A smoothed maximum over windows of three rows and two columns, with a weight for each channel: rows share loads."""

import torch
import triton
import triton.language as tl


def reference(x, weight):
    padded = torch.nn.functional.pad(x, (0, 1, 1, 1), value=float("-inf"))
    return torch.nn.functional.max_pool2d(padded, (3, 2), stride=1) * weight[:, None, None]


def get_inputs(batch=8, channels=64, height=512, width=512):
    return [torch.randn(batch, channels, height, width), torch.randn(channels)]


SHAPES = [dict()]
TEST_SHAPES = [
    dict(batch=2, channels=3, height=5, width=7),
    dict(batch=1, channels=2, height=4, width=33),
    dict(batch=1, channels=1, height=1, width=1),
    dict(batch=3, channels=1, height=9, width=2),
]


@triton.jit
def windows_kernel(x_ptr, w_ptr, y_ptr, channels, height, width, n_rows, ROW: tl.constexpr, COL: tl.constexpr):
    line = tl.program_id(0) * ROW + tl.arange(0, ROW)[:, None]
    there = line < n_rows
    col = tl.program_id(1) * COL + tl.arange(0, COL)[None, :]
    inside = col < width
    right = inside & (col + 1 < width)
    y = line % height
    image = line // height
    weight = tl.load(w_ptr + image % channels, there)
    start = x_ptr + image * height * width + col
    low = float("-inf")
    above = (y >= 1) & (y - 1 < height)
    here = (y + 1 >= 1) & (y < height)
    below = (y + 2 >= 1) & (y + 1 < height)
    up_0 = tl.load(start + (y - 1) * width, there & inside & above, other=low)
    up_1 = tl.load(start + (y - 1) * width + 1, there & right & above, other=low)
    here_0 = tl.load(start + y * width, there & inside & here, other=low)
    here_1 = tl.load(start + y * width + 1, there & right & here, other=low)
    down_0 = tl.load(start + (y + 1) * width, there & inside & below, other=low)
    down_1 = tl.load(start + (1 + y) * width + 1, there & right & below, other=low)
    most = tl.maximum(tl.maximum(up_0, up_1), tl.maximum(here_0, here_1))
    most = tl.maximum(most, tl.maximum(down_0, down_1))
    tl.store(y_ptr + line * width + col, most * weight, there & inside)


def windows(x, weight):
    y = torch.empty_like(x)
    batch, channels, height, width = x.shape
    rows = batch * channels * height
    grid = lambda meta: (triton.cdiv(rows, meta["ROW"]), triton.cdiv(width, meta["COL"]))
    windows_kernel[grid](x, weight, y, channels, height, width, rows, ROW=4, COL=32)
    return y


launch = windows
SPACE = {"ROW": [1, 4, 16], "COL": [32, 128]}
