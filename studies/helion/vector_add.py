"""The sum of two vectors in float32, 2**19 to 2**28 elements."""

import torch


def reference(x, y):
    return x + y


def get_inputs(n=2**20):
    return [torch.randn(n), torch.randn(n)]


SHAPES = [dict(n=2**i) for i in range(19, 29)]
TEST_SHAPES = [dict(n=1000), dict(n=1)]
