"""Rows of several channels, each with a weight and a shift of its own: the channel is a quotient of the column."""

import torch
import triton
import triton.language as tl


def reference(x, weight, shift):
    columns = x.shape[1] // weight.shape[0]
    return x * weight.repeat_interleave(columns) + shift.repeat_interleave(columns)


def get_inputs(rows=256, channels=64, columns=16384):
    return [torch.randn(rows, channels * columns), torch.randn(channels), torch.randn(channels)]


SHAPES = [dict()]
TEST_SHAPES = [
    dict(rows=3, channels=5, columns=40),
    dict(rows=2, channels=3, columns=64),
    dict(rows=1, channels=1, columns=1),
    dict(rows=2, channels=40, columns=3),
]


@triton.jit
def channel_weights_kernel(x_ptr, w_ptr, b_ptr, y_ptr, columns, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for at in tl.range(0, n_cols, BLOCK):
        index = at + tl.arange(0, BLOCK)
        inside = index < n_cols
        x = tl.load(x_ptr + row * n_cols + index, inside, other=0.0)
        channel = index // columns
        weight = tl.load(w_ptr + channel, mask=inside, other=0.0)
        shift = tl.load(b_ptr + channel, inside)
        tl.store(y_ptr + row * n_cols + index, x * weight + shift, inside)


def channel_weights(x, weight, shift):
    y = torch.empty_like(x)
    rows, n_cols = x.shape
    channel_weights_kernel[(rows,)](x, weight, shift, y, n_cols // weight.shape[0], n_cols, BLOCK=1024)
    return y


launch = channel_weights
SPACE = {"BLOCK": [256, 1024]}
