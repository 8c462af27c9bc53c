"""Makes test shapes from a timed one: its integers shrink as far as the reference accepts.

Large integers go first, to sizes that divide nothing and then to powers of two. If the inputs still have too many
elements to be evaluated on a CPU, small integers follow, the batch first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

LARGE = 48
"""Integers up to this are kernel sizes, groups or heads, and stay unless the inputs are too large."""

ENOUGH = 1 << 14
"""Elements of all inputs together that a test shape should not exceed."""

ODD = (37, 70, 5, 3, 32, 16, 128, 96, 48, 8)
EVEN = (64, 32, 16, 8, 48, 128, 96)
FIRST = 4
SMALL = (3, 2, 8, 4, 1, 16)
LEAST, WORTH = (1, 2), 0.75
"""Sizes beside one that stays large: an axis of 2048 alone may mean 2048 programs, all of which run."""

Elements = Callable[[Mapping[str, Any]], int | None]
"""The number of elements of a shape's inputs; None when the reference does not take them."""


NAMED_SIZES = (
    "names for the sizes in get_inputs (a parameter rows=4096; where the reference is a Model, rows = 4096 above it)"
)
UNNAMED = (
    "get_inputs has no named size to shrink, so that all is judged at full size, which may take minutes: use "
    f"{NAMED_SIZES}, or add TEST_SHAPES"
)
"""What is said of a task whose test shapes cannot be made."""


def keep_by_shape(function: Callable[[Mapping[str, Any]], Any]) -> Callable[[Mapping[str, Any]], Any]:
    """A function of a shape's parameters with its results kept: it makes inputs, or runs the user's reference."""
    kept: dict[str, Any] = {}

    def call(params: Mapping[str, Any]) -> Any:
        key = repr(sorted(params.items()))
        if key not in kept:
            kept[key] = function(params)
        return kept[key]

    return call


def choose_base(shapes: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The first shape with the most sizes that shrink, so that not every test shape has one row.

    Among those the one with the fewest equal sizes. Integers that are 0 somewhere are no sizes.
    """
    names = [name for name, value in shapes[0].items() if type(value) is int and all(s[name] for s in shapes)]
    large = [[shape[name] for name in names if shape[name] > LARGE] for shape in shapes]
    return max(zip(large, shapes), key=lambda pair: (len(pair[0]), len(set(pair[0]))))[1]


def shrink_shape(base: Mapping[str, Any], elements: Elements) -> tuple[list[dict[str, Any]], str]:
    """One or two test shapes made from `base`'s parameters, and a note for the user when they are not small.

    Parameters of equal value shrink together where the reference accepts that: they are likely one size under two
    names.
    """
    numbers = [name for name, value in base.items() if type(value) is int]
    if not numbers:
        return [dict(base)], UNNAMED
    shapes: list[dict[str, Any]] = []
    note = ""
    for sizes in (ODD, EVEN):
        shape = _shrink(dict(base), numbers, sizes, elements)
        if (elements(shape) or 0) > ENOUGH:
            shape = _shrink_further(shape, numbers, LEAST, elements, {}, WORTH)
            label = " ".join(f"{n}={shape[n]}" for n in numbers)
            note = (
                f"the test shape {label} has {elements(shape)} elements and may take minutes, because the reference "
                "takes none smaller: let it take its sizes from its inputs, or add TEST_SHAPES"
            )
        if shape not in shapes:
            shapes.append(shape)
    if shapes == [dict(base)] and note:
        note = "no smaller test shape was found: the timed shape is judged; add TEST_SHAPES"
    return shapes, note


def spread_sizes(
    timed: Sequence[Mapping[str, Any]], tests: Sequence[Mapping[str, Any]], elements: Elements
) -> list[dict[str, Any]]:
    """The test shapes, the first changed so that each integer has two values and no two are equal in all shapes.

    An integer stays as it is where the reference accepts no other value of it alone.
    """
    first, others = dict(tests[0]), [*timed, *tests[1:]]
    names = [name for name, value in first.items() if type(value) is int]
    for number, name in enumerate(names):
        size = first[name]
        twins = [n for n in names[:number] if all(s[n] == s[name] for s in others)]
        if all(s[name] == size for s in others) or any(first[n] == size for n in twins):
            for value in (size - 1, size + 1, size // 2, size * 2):
                tried = {**first, name: value}
                if value > 1 and all(first[n] != value for n in twins) and elements(tried) is not None:
                    first = tried
                    break
    return [first, *map(dict, tests[1:])]


def _shrink(shape: dict[str, Any], names: Sequence[str], sizes: Sequence[int], elements: Elements) -> dict[str, Any]:
    used: dict[int, int] = {}
    before = shape
    for value in sorted({shape[n] for n in names if shape[n] > LARGE}, reverse=True):
        together = [n for n in names if shape[n] == value]
        first = sizes[:FIRST]  # all at once at the best sizes, else each by itself, else all at once at any size
        for group, allowed in [(together, first), *(([n], sizes) for n in together), (together, sizes)]:
            if all(shape[n] == value for n in group):
                ranked = sorted((s for s in allowed if s < value), key=lambda s: used.get(s, 0))
                shape = _try_sizes(shape, group, ranked, elements, used)
    # heads of 16 first: the 37 rows that a size became tell more than 3
    return _shrink_further(shape, sorted(names, key=lambda n: (shape[n] < before[n], -shape[n])), SMALL, elements, used)


def _shrink_further(
    shape: dict[str, Any],
    names: Sequence[str],
    sizes: Sequence[int],
    elements: Elements,
    used: dict[int, int],
    share: float = 1.0,
) -> dict[str, Any]:
    """The shape with one size after the other smaller, the batch first, until the inputs are small enough."""
    for name in sorted(names, key=lambda n: "batch" not in n.lower()):
        if (elements(shape) or 0) <= ENOUGH:
            break
        shape = _try_sizes(shape, [name], [s for s in sizes if s < shape[name]], elements, used, share)
    return shape


def _try_sizes(
    shape: dict[str, Any],
    group: Sequence[str],
    sizes: Sequence[int],
    elements: Elements,
    used: dict[int, int],
    share: float = 1.0,
) -> dict[str, Any]:
    """The shape with the group at the first size that the reference accepts and that makes the inputs smaller.

    They must have less than `share` of their elements then.
    """
    before = elements(shape) or math.inf  # too many to try a reference that reads values on them
    for size in sizes:
        tried = {**shape, **dict.fromkeys(group, size)}
        now = elements(tried)
        if now is not None and now < before * share:
            used[size] = used.get(size, 0) + 1
            return tried
    return shape
