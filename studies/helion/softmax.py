"""Softmax of rows in float16: 98 widths in steps of 128, and two that are wide."""

import torch


def reference(x):
    return torch.softmax(x, dim=-1)


def get_inputs(rows=4096, cols=1024):
    return [torch.randn(rows, cols, dtype=torch.float16)]


SHAPES = [dict(rows=4096, cols=128 * i) for i in range(2, 100)]
SHAPES += [dict(rows=4096, cols=16384), dict(rows=2048, cols=32768)]
TEST_SHAPES = [dict(rows=3, cols=1000), dict(rows=1, cols=129)]
DOMAIN = {"x": "finite"}
