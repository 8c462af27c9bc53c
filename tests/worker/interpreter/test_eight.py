"""8-bit floats in the interpreter: PyTorch's own conversions for numbers in range, saturation beyond, as PTX says."""

import itertools

import pytest

PAIRS = list(itertools.product(("e5", "e4"), ("fp32", "fp16", "bf16")))
LARGEST = {"e5": 57344.0, "e4": 448.0}
CUT = {"e5": 1.75, "e4": 1.875}


@pytest.mark.parametrize(("eight", "wide"), PAIRS)
def test_conversions_are_those_of_pytorch(results, eight, wide):
    assert results[f"{eight} to {wide}"] and results[f"{wide} to {eight}"]


@pytest.mark.parametrize("eight", LARGEST)
def test_the_ends_saturate_and_a_mantissa_carries(results, eight):
    most, cut = LARGEST[eight], CUT[eight]
    assert results[f"ends in {eight}"] == [most, -most, most, -most, -1e9, 2.0, -2.0, 0.0]
    assert results[f"toward zero in {eight}"] == [most, -most, most, -most, -1e9, cut, -cut, 0.0]


def test_a_format_that_is_not_known_is_said(results):
    assert "fp8e4b15 are not known here: they cannot be judged without a GPU" in results["odd"]
