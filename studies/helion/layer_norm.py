"""Layer norm of rows in float16: 30 widths in steps of 512, and eight that models have."""

import torch
import torch.nn.functional as F


def reference(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, 1e-5)


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
