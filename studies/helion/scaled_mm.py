"""A product of a few rows of float8 with large weights, scaled, with a bias: a step of decoding."""

import torch

FP8 = torch.float8_e4m3fn


def reference(a, b, scale_a, scale_b, bias):
    """b is (columns, inner)."""
    product = (a.float() @ b.float().T) * scale_a * scale_b
    return (product + bias.float()).to(torch.bfloat16)


def get_inputs(m=16, k=4096, n=4096):
    a, b = ((k**-0.5 * (0.5 + torch.rand(rows, k))).to(FP8) for rows in (m, n))
    return [a, b, 0.5 + torch.rand(1, 1), 0.5 + torch.rand(1, 1), 0.5 * (torch.rand(n, dtype=torch.bfloat16) - 0.5)]


def scaled_mm(a, b, scale_a, scale_b, bias):
    return torch._scaled_mm(a, b.T, scale_a=scale_a, scale_b=scale_b, bias=bias, out_dtype=torch.bfloat16)


BASELINES = {"torch._scaled_mm": scaled_mm}
INNER_AND_COLUMNS = [
    (2048, 4096), (2048, 2048), (2048, 12288), (6144, 2048), (4096, 6144), (4096, 4096), (4096, 24576), (12288, 4096),
    (5120, 10240), (5120, 5120), (5120, 51200), (25600, 5120),
]  # fmt: skip
SHAPES = [dict(m=m, k=k, n=n) for m in (16, 64) for k, n in INNER_AND_COLUMNS]
TEST_SHAPES = [dict(m=16, k=256, n=128), dict(m=32, k=128, n=64)]
