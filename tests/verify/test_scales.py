"""Secret scales: no band of values is left out, and what a regime scales is what its name says."""

import itertools
import math

import pytest
import torch

from kernelsearch.verify import regimes
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.verify.judge import judge


def softmax(x):
    return torch.softmax(x, -1)


def rejects(kernel, reference, inputs, regime, seed, **how):
    made = regimes.make_inputs(inputs, regime, seed, **how)
    expected = make_expectation(reference, reference, made, regime=regime, seed=seed)
    assert judge(expected, [reference(*made)]).accepted, (regime, seed)
    return not judge(expected, [kernel(*made)]).accepted


def seeds_of(regime, seed, scales):
    """The seeds of the cases of one verdict, as `case_choice` counts them."""
    return range(seed, seed + math.ceil(regimes.WANTED[regime] / scales))


def test_whole_numbers_also_cancel_along_either_axis():
    """Then a block's sum is 0 although its numbers are not: no kernel may take it for empty."""
    for seed in range(4):
        (x,) = regimes.make_inputs([torch.zeros(64, 300)], "integers", seed)
        zero = x.sum(1 - seed % 2) == 0
        assert 8 <= int(zero.sum()) < 0.5 * len(zero)
        assert bool((x.abs().amax(1 - seed % 2)[zero] > 0).all())


@pytest.mark.parametrize("low", [2e-4, 3e-3, 0.1, 1.7, 400.0, 4e3])
@pytest.mark.parametrize("seed", [11, 70_000_001])
def test_rows_of_one_octave_that_are_zeroed_are_seen_by_one_verdict(low, seed):
    """Zeros for rows of scale 0.003 to 0.5, or of 400 to 8000, passed where scales were fixed."""
    x = torch.randn(7, 200)

    def zeros_in_band(x):
        most = x.abs().amax(-1, keepdim=True)
        return torch.where((most > low) & (most < 2.5 * low), torch.zeros_like(x), softmax(x))

    seen = (rejects(zeros_in_band, softmax, [x], "scaled", s, rows=7) for s in seeds_of("scaled", seed, 7))
    assert any(seen)


@pytest.mark.parametrize("low", [3e-3, 0.5, 100.0])
def test_a_tile_of_small_numbers_that_counts_as_zero_is_seen(low):
    a, b = torch.randn(32, 48), torch.randn(48, 16)

    def drop_tile(a, b):
        return torch.zeros_like(a @ b) if low < float(a.abs().max()) < 2.5 * low else a @ b

    kinds = (rejects(drop_tile, torch.matmul, [a, b], "whole", s, rows=32) for s in seeds_of("whole", 5, 1))
    assert any(kinds)


def test_blocks_of_columns_have_a_part_in_a_sum_of_products():
    a, b = regimes.make_inputs([torch.randn(64, 512), torch.randn(512, 64)], "blocks", 3, rows=64)
    scales = a.abs().amax(0)
    assert scales.max() / scales.min() > 1e4
    parts = (scales * b.abs().amax(1)).log2()
    assert float(parts.max() - parts.min()) < 8, "the other operand makes up for the scale"


@pytest.mark.parametrize("regime, low, high", [("far", 2.0**-41, 2.0**30), ("extreme", 0.0, 3.4e38)])
def test_far_values_lie_outside_the_middle_and_in_one_tensor_only(regime, low, high):
    blank = [torch.randn(60, 40), torch.randn(60, 40)]
    outside = set()
    for seed in range(4):
        made = regimes.make_inputs(blank, regime, seed, rows=60, exponentials=False)
        far = [v.abs().amax(1) for v in made]
        scaled = [i for i, most in enumerate(far) if most.max() > 1e4 or most.min() < 1e-3]
        assert len(scaled) == 1 and low <= far[scaled[0]].min() and far[scaled[0]].max() <= high
        outside.update(scaled)
    assert outside == {0, 1}


def test_large_exponents_are_left_out_where_an_honest_exponential_overflows():
    for seed in range(8):
        (x,) = regimes.make_inputs([torch.randn(60, 40)], "extreme", seed, rows=60)
        assert x.abs().max() < 1.0


def test_masked_rows_end_in_a_finite_value_and_a_domain_leaves_them_out():
    blank = [torch.randn(200, 33)]
    (x,) = regimes.make_inputs(blank, "masked", 2, names=("x",))
    hidden = x.isinf().sum(1)
    assert torch.equal(torch.arange(33) < hidden[:, None], x.isinf()) and bool(x[:, -1].isfinite().all())
    assert len(set(hidden.tolist())) > 10 and hidden.max() > 20
    for limit in ("finite", "positive", (-8, 8)):
        (x,) = regimes.make_inputs(blank, "masked", 2, names=("x",), domain={"x": limit})
        assert bool(x.isfinite().all())


@pytest.mark.parametrize("regime", [*regimes.ALL, *regimes.OPTIONAL])
@pytest.mark.parametrize("limit", [(-8, 8), (0.5, 3.0), (-1.0, -0.25)])
def test_a_range_holds_in_every_regime(regime, limit):
    (x,) = regimes.make_inputs([torch.randn(40, 50)], regime, 1, names=("x",), domain={"x": limit})
    assert limit[0] <= float(x.min()) and float(x.max()) <= limit[1]
    assert len(x.unique()) > 3 or regime == "integers"


def test_an_honest_norm_is_right_at_all_scales():
    """Its squares leave the range of float32 before its answer does: there it is not judged."""

    def norm(x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)

    def by_sum(x):
        return x / torch.sqrt((x * x).sum(-1, keepdim=True) / x.shape[-1] + 1e-6)

    for regime, seed in itertools.product(("scaled", "whole", "shifted", "far", "extreme"), range(6)):
        assert not rejects(by_sum, norm, [torch.randn(40, 300)], regime, seed, rows=40, exponentials=False)


def test_a_row_that_overflows_in_eager_is_not_judged_where_it_is_near_by_chance():
    """Welford's sums are NaN where squares leave the range; a tenth of eager's elements are near the bias there."""

    def norm(x, weight, bias):
        return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias)

    def welford(x, weight, bias):
        return torch.where(x.abs().amax(-1, keepdim=True) > 2.0**60, torch.nan, norm(x, weight, bias))

    for seed in range(6):
        inputs = [torch.randn(40, 300), torch.randn(300), torch.randn(300)]
        assert not rejects(welford, norm, inputs, "extreme", seed, rows=40, exponentials=False)
