"""The shapes at which a candidate is timed: a few that lie apart, then those where it may be the best."""

import itertools
import random

import pytest

from kernelsearch.core import timed_shapes
from kernelsearch.core.timed_shapes import choose_shape, interpolate_ratios, is_better_somewhere, is_settled
from kernelsearch.core.types import ShapeFact


def place(**axes):
    names = list(axes)
    product = itertools.product(*axes.values())
    facts = [ShapeFact(f"timed:{i}", "", dict(zip(names, at, strict=True))) for i, at in enumerate(product)]
    return timed_shapes.place_shapes(facts)


WIDTHS = place(rows=[4096], cols=[2**n for n in range(6, 22)])
BEST = dict.fromkeys(WIDTHS, 10.0)


def timed(points, best, take):
    """The shapes in the order in which they are timed."""
    times = {}
    while (shape := choose_shape(points, times, best)) is not None:
        times[shape] = take(shape)
    return times


def test_shapes_lie_by_the_logarithms_of_what_differs():
    points = place(rows=[4096], cols=[256, 1024, 4096], dtype=["half", "float"])
    assert (
        points["timed:0"] == (0.0, 0.0)
        and points["timed:3"] == pytest.approx((0.5, 1.0))
        and points["timed:5"] == (1.0, 1.0)
    )
    assert place(rows=[7]) == {"timed:0": ()}


def test_the_first_is_timed_everywhere_and_few_shapes_always():
    assert set(timed(WIDTHS, {}, lambda s: 1.0)) == set(WIDTHS)
    three = dict(list(WIDTHS.items())[:3])
    assert len(timed(three, BEST, lambda s: 99.0)) == 3


@pytest.mark.parametrize("slow", [1.3, 5.0])
def test_a_candidate_that_is_slow_everywhere_is_timed_at_a_few_shapes(slow):
    assert len(timed(WIDTHS, BEST, lambda s: slow * BEST[s])) == timed_shapes.APART


@pytest.mark.parametrize("first", [0, 4, 8, 11])
def test_one_that_is_best_in_a_range_is_timed_in_all_of_it(first):
    """A quarter of the widths, wherever they lie; beside them it grows slower with the distance."""
    keys = list(WIDTHS)
    inside = set(keys[first : first + 5])

    def take(shape):
        n = keys.index(shape)
        return BEST[shape] * (0.8 if shape in inside else 1.0 + 0.05 * max(first - n, n - first - 4))

    times = timed(WIDTHS, BEST, take)
    assert inside <= times.keys() and len(times) < len(WIDTHS)


def test_one_that_is_nearly_as_good_everywhere_is_not_timed_everywhere():
    chance = random.Random(0)
    points = place(rows=[2**n for n in range(10)], cols=[2**n for n in range(10)])
    best = dict.fromkeys(points, 10.0)
    times = timed(points, best, lambda s: chance.uniform(10.1, 10.5))
    assert len(times) <= timed_shapes.APART + len(points) // 6


def test_ratios_between_shapes_lie_between_theirs():
    known = {"timed:0": 2.0, "timed:15": 0.5}
    ratios = interpolate_ratios(WIDTHS, known)
    assert ratios["timed:0"] == 2.0 and ratios["timed:15"] == 0.5
    between = [ratios[f"timed:{n}"] for n in range(16)]
    assert between == sorted(between, reverse=True)
    assert set(interpolate_ratios(WIDTHS, {}).values()) == {1.0}


def test_of_several_shapes_a_gain_at_one_counts_if_it_is_one():
    assert is_better_somewhere({"a": 9.99}, {"a": 10.0}) and not is_better_somewhere({"a": 10.0}, {"a": 10.0})
    assert not is_better_somewhere({"a": 9.99, "b": 50.0}, {"a": 10.0, "b": 10.0})
    assert is_better_somewhere({"a": 9.8, "b": 50.0}, {"a": 10.0, "b": 10.0}) and is_better_somewhere({"a": 5.0}, {})


def test_a_candidate_is_settled_once_nothing_more_would_be_timed():
    one = {"timed:0": ()}
    assert is_settled(one, {"timed:0": 21.0}, BEST) and not is_settled(one, {"timed:0": 19.0}, BEST)
    assert not is_settled(WIDTHS, {"timed:0": 30.0}, BEST)
    assert is_settled(WIDTHS, timed(WIDTHS, BEST, lambda s: 15.0), BEST)
    assert not is_settled(WIDTHS, timed(WIDTHS, BEST, lambda s: 15.0), dict.fromkeys(BEST, 16.0))
