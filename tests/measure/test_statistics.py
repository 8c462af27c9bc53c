"""Intervals on series of known truth: they hold it as often as they say, and nothing moves them that should not."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.measure.timing import paired_statistics as paired


def series(rng, blocks, ratio, noise=0.004, memory=0.2):
    """Log-ratios around log(ratio); memory is the correlation of one block with the next."""
    shocks = rng.normal(0, noise * math.sqrt(1 - memory**2), blocks)
    values = [rng.normal(0, noise)]
    for shock in shocks[1:]:
        values.append(memory * values[-1] + shock)
    return [math.log(ratio) + v for v in values]


def test_the_a_a_interval_contains_1_in_at_least_95_of_100_repeats():
    rng = np.random.default_rng(7)
    found = [paired.bootstrap_interval([series(rng, 60, 1.0)], seed=i) for i in range(100)]
    assert sum(f.low <= 1.0 <= f.high for f in found) >= 95
    assert 0.0005 < np.median([f.half_width for f in found]) < 0.005


@pytest.mark.parametrize("ratio", [0.97, 1.02, 1.5])
def test_a_known_ratio_is_found(ratio):
    rng = np.random.default_rng(3)
    found = [paired.bootstrap_interval([series(rng, 60, ratio)], seed=i) for i in range(20)]
    assert sum(f.low <= ratio <= f.high for f in found) >= 18
    assert all(f.ratio == pytest.approx(ratio, rel=0.005) for f in found)


def test_a_few_wild_blocks_do_not_move_the_median():
    rng = np.random.default_rng(5)
    values = series(rng, 60, 1.1)
    for i in (3, 17, 40):
        values[i] = math.log(9.0)
    found = paired.bootstrap_interval([values])
    assert found.low <= 1.1 <= found.high and found.high < 1.12


def test_several_shapes_are_their_geometric_mean():
    rng = np.random.default_rng(9)
    found = paired.bootstrap_interval([series(rng, 60, 1.2), series(rng, 45, 1.0), series(rng, 80, 1.8)])
    assert found.ratio == pytest.approx((1.2 * 1.0 * 1.8) ** (1 / 3), rel=0.005)
    assert found.low <= (1.2 * 1.0 * 1.8) ** (1 / 3) <= found.high and found.blocks == 45


def test_more_comparisons_mean_a_higher_level_and_a_wider_interval():
    values = series(np.random.default_rng(2), 60, 1.0)
    one, three = (paired.bootstrap_interval([values], paired.level_for_comparisons(n)) for n in (1, 3))
    assert paired.level_for_comparisons(3) == pytest.approx(1 - 0.01 / 3)
    assert three.low <= one.low and three.high >= one.high and three.half_width > one.half_width


def test_too_few_blocks_give_no_interval_and_equal_ones_a_point():
    assert paired.bootstrap_interval([]) is None and paired.bootstrap_interval([[0.1, 0.1, 0.1]]) is None
    point = paired.bootstrap_interval([[0.0] * 20])
    assert (point.low, point.ratio, point.high) == (1.0, 1.0, 1.0)


def test_faster_needs_more_than_one_percent_and_more_than_the_a_a_spread():
    gain = paired.Interval(1.03, 1.02, 1.04, 0.99, 60)
    assert paired.is_faster(gain, 0.002) and not paired.is_faster(gain, 0.02)
    assert not paired.is_faster(paired.Interval(1.02, 1.009, 1.03, 0.99, 60), 0.0)
    assert not paired.is_faster(None, 0.0) and not paired.is_faster(gain, paired.spread_of(None))
    assert paired.spread_of(paired.Interval(1.0, 0.99, 1.004, 0.99, 60)) == pytest.approx(1 / 0.99 - 1)


@given(st.integers(4, 2000))
def test_groups_are_short_and_there_are_enough_of_them(blocks):
    length = paired.group_length_of(blocks)
    assert 1 <= length <= blocks and (length == 1 or blocks // length >= paired.LEAST_GROUPS)
