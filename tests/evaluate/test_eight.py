"""8-bit floats: PyTorch's own conversions for numbers in range, saturation beyond, as PTX says."""

import itertools

import pytest
import torch
from evaluated import evaluate

EIGHT = {"e5": torch.float8_e5m2, "e4": torch.float8_e4m3fn}
WIDE = (torch.float32, torch.float16, torch.bfloat16)
LARGEST = {"e5": 57344.0, "e4": 448.0}
CAST = """
@triton.jit
def kernel(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y + i, tl.load(x + i).to(y.dtype.element_ty))
"""


def cast(x, dtype):
    y = torch.zeros(x.shape, dtype=dtype)
    evaluate(CAST, dict(x=x, y=y), dict(N=x.numel()), (1,))
    return y.double().nan_to_num(-1e9)


def numbers(eight):
    """Every 8-bit number, the middles between neighbours, and what lies beside both; no larger than the last."""
    every = torch.arange(256, dtype=torch.uint8).view(eight).double()
    every = every[every.isfinite()].sort().values
    marks = torch.cat([every, (every[1:] + every[:-1]) / 2])
    values = torch.cat([marks, marks * (1 + 2**-9), marks * (1 - 2**-9), torch.randn(300, dtype=torch.float64)])
    values = values.clamp(every[0], every[-1])
    return torch.cat([values, torch.zeros(2048 - values.numel(), dtype=torch.float64)])


@pytest.mark.parametrize("eight, wide", [*itertools.product(EIGHT, WIDE)])
def test_conversions_are_those_of_pytorch(eight, wide):
    codes, values = torch.arange(256, dtype=torch.uint8).view(EIGHT[eight]), numbers(EIGHT[eight]).to(wide)
    assert torch.equal(cast(codes, wide), codes.to(wide).double().nan_to_num(-1e9))
    assert torch.equal(cast(values, EIGHT[eight]), values.to(EIGHT[eight]).double().nan_to_num(-1e9))


@pytest.mark.parametrize("eight", EIGHT)
def test_the_ends_saturate_and_a_mantissa_carries(eight):
    ends = torch.tensor([1e6, -1e6, float("inf"), -float("inf"), float("nan"), 1.99, -1.99, 0.0])
    most = LARGEST[eight]
    assert cast(ends, EIGHT[eight]).tolist() == [most, -most, most, -most, -1e9, 2.0, -2.0, 0.0]
