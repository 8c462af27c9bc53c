"""Makes test shapes from a timed one: the large integers shrink, as long as the reference still takes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

LARGE = 48
"""Integers up to this stay: they are kernel sizes, groups, heads, and small already."""

STEPS = ((37, 70, 5, 3), (64, 32, 16), (128, 96, 48))
"""What a large integer becomes: first sizes that divide nothing, then powers of two, then what heads divide."""


Runs = Callable[[Mapping[str, Any], str], bool]
"""Whether the reference takes a shape's inputs on a device: `cpu` computes, `meta` only follows the shapes."""


def shrunk(base: Mapping[str, Any], numbers: Mapping[str, int], runs: Runs) -> tuple[list[dict[str, Any]], str]:
    """One or two test shapes, and a note for the user when an integer could not shrink.

    base are all parameters, numbers the integer ones among them. First all large integers shrink at
    once; where the reference does not take that, one after the other, the largest first. Parameters
    of equal value shrink together: they are likely one size under two names.
    """
    if not any(value > LARGE for value in numbers.values()):
        return [dict(base)], "" if numbers else "get_inputs has no integer to shrink for test shapes; add TEST_SHAPES"
    together = [shape for step in STEPS if runs(shape := _all(base, numbers, step), "cpu")]
    if together:
        return [shape for i, shape in enumerate(together[:2]) if shape not in together[:i]], ""
    odd, stuck = _one(base, numbers, runs, STEPS)
    even, _ = _one(base, numbers, runs, STEPS[1:])
    shapes = [odd] if odd == even else [odd, even]
    if shapes == [dict(base)]:
        return shapes, "no smaller test shape was found: the timed shape is judged; add TEST_SHAPES"
    note = f"test shapes keep {', '.join(stuck)}: the reference takes nothing smaller; add TEST_SHAPES" if stuck else ""
    return shapes, note


def _all(base: Mapping[str, Any], numbers: Mapping[str, int], sizes: tuple[int, ...]) -> dict[str, Any]:
    large = sorted({v for v in numbers.values() if v > LARGE}, reverse=True)
    smaller = {value: min(value, sizes[i % len(sizes)]) for i, value in enumerate(large)}
    return {**base, **{n: smaller[v] for n, v in numbers.items() if v in smaller}}


def _one(
    base: Mapping[str, Any],
    numbers: Mapping[str, int],
    runs: Runs,
    steps: tuple[tuple[int, ...], ...],
) -> tuple[dict[str, Any], list[str]]:
    shape = dict(base)
    stuck: list[str] = []
    used: dict[int, int] = {}
    for value in sorted({v for v in numbers.values() if v > LARGE}, reverse=True):
        together = [n for n, v in numbers.items() if v == value]
        groups = [together] if len(together) == 1 else [together, *([n] for n in together)]
        for group in groups:
            if all(shape[n] != value for n in group):
                continue
            for size in _sizes(steps, value, used):
                tried = {**shape, **dict.fromkeys(group, size)}
                if runs(tried, "meta"):
                    shape = tried
                    used[size] = used.get(size, 0) + 1
                    break
        stuck.extend(n for n in together if shape[n] == value)
    return shape, stuck


def _sizes(steps: tuple[tuple[int, ...], ...], value: int, used: Mapping[int, int]) -> list[int]:
    """Smaller sizes to try, those not yet taken first, so that two axes rarely have the same size."""
    smaller = [size for step in steps for size in step if size < value]
    return sorted(smaller, key=lambda size: (_step(steps, size), used.get(size, 0)))


def _step(steps: tuple[tuple[int, ...], ...], size: int) -> int:
    return next(i for i, step in enumerate(steps) if size in step)
