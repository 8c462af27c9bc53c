"""Honest ways to compute five operations are never rejected, cheating ones always: see variants.py for the table."""

import functools

import pytest
import torch
import variants

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
WITHIN_16_BITS = {
    ("softmax", "bf16 denominator", torch.bfloat16),
    ("layernorm", "unbiased", torch.bfloat16),
    ("matmul", "tf32", torch.bfloat16),
    ("matmul", "tf32", torch.float16),
    ("attention", "tf32", torch.bfloat16),
    ("attention", "tf32", torch.float16),
    ("attention", "bf16 p", torch.bfloat16),
    ("layernorm backward", "bf16 sum", torch.bfloat16),
    ("centred sums", "bf16 mean", torch.bfloat16),
    ("polynomials", "bf16 terms", torch.bfloat16),
    ("polynomials", "tf32 terms", torch.bfloat16),
}
"""Tricks that err less than a 16-bit output rounds: numbers cannot see them, only the precision contract can."""

made = functools.cache(lambda name, dtype: list(variants.cases(name, dtype)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", variants.OPERATIONS)
def test_no_honest_way_is_rejected(name, dtype):
    for label, way in variants.OPERATIONS[name].honest.items():
        verdict, _ = variants.worst(made(name, dtype), way)
        assert verdict.accepted, f"{label}: {verdict.reason} {verdict.detail}"


@pytest.mark.slow
@pytest.mark.parametrize("draw", [100, 119, 132])
def test_a_sum_that_is_rounded_on_its_way_is_rounded_differently_in_each_sample(draw):
    """Draws in which eager's roundings to bfloat16 were by accident small, and the same for all neighbours."""
    made = list(variants.cases("centred sums", torch.bfloat16, seed=1_000_003 * draw + 17))
    for label, way in variants.OPERATIONS["centred sums"].honest.items():
        assert variants.worst(made, way)[0].accepted, label


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", variants.OPERATIONS)
def test_every_cheat_is_rejected(name, dtype):
    for label, way in variants.OPERATIONS[name].cheats.items():
        verdict, _ = variants.worst(made(name, dtype), way)
        assert verdict.accepted == ((name, label, dtype) in WITHIN_16_BITS), f"{label}: {verdict.error_ratio}"
