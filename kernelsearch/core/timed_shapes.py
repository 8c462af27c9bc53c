"""Chooses the shapes at which a candidate is timed: those where it may be faster than what is known there.

A candidate is timed at a few shapes that lie apart. What it takes elsewhere, as a multiple of the best time there, is
interpolated over the logarithms of the sizes (inverse distance weighting; Shepard, 1968), and the shape where most is
expected comes next, until nothing is expected at the others.
"""

from __future__ import annotations

import math
from ast import literal_eval
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

from kernelsearch.core.types import LEAST_GAIN, ShapeFact

DRAWN = "drawn:"
"""How the key of a shape begins whose sizes were drawn: `drawn:timed:0:rows=261 cols=989` is a timed shape with these.

So every process knows the shape, and nobody does before it is drawn.
"""


def split_drawn(key: str) -> tuple[str, dict[str, Any]]:
    """The key of the shape that a drawn one was made of, and its own sizes, or lists of them."""
    _, kind, number, sizes = key.split(":")
    return f"{kind}:{number}", {n: literal_eval(value) for n, value in (size.split("=") for size in sizes.split())}


def has_lists(key: str) -> bool:
    """Whether lists of sizes were drawn."""
    return key.startswith(DRAWN) and key.endswith((")", "]"))


APART = 3
"""The shapes that every candidate is timed at."""
HOPE = 1.1
"""A shape is worth timing if at most this many times its best time is expected."""
LOST = 3
"""Beyond APART, this many shapes, or a sixth of all, may be timed in vain."""
FAR = 2.0
"""A candidate with this many times the best time at a shape is not sampled further there."""

Points = Mapping[str, tuple[float, ...]]
"""Where the shapes lie, by their keys: coordinates between 0 and 1."""


def place_shapes(shapes: Iterable[ShapeFact]) -> dict[str, tuple[float, ...]]:
    """The shapes by their parameters: numbers by their logarithms, other values apart, each axis scaled to 1."""
    known = list(shapes)
    axes = []
    for name in dict.fromkeys(n for s in known for n in s.params):
        values = [s.params.get(name) for s in known]
        numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0]
        kinds = list(dict.fromkeys(map(str, values)))
        axis = (
            [float(kinds.index(str(v))) for v in values] if len(numbers) < len(values) else list(map(math.log, numbers))
        )
        if len(kinds) > 1:
            low, width = min(axis), max(axis) - min(axis)
            axes.append([(a - low) / width for a in axis])
    return {s.key: tuple(axis[i] for axis in axes) for i, s in enumerate(known)}


def interpolate_ratios(points: Points, ratios: Mapping[str, float]) -> dict[str, float]:
    """The ratios of all shapes: the given ones, and between them what their neighbours let expect."""
    found = {}
    for shape, at in points.items():
        if shape in ratios or not ratios:
            found[shape] = ratios.get(shape, 1.0)
            continue
        weights = {known: 1.0 / (math.dist(at, points[known]) ** 2 + 1e-9) for known in ratios}
        found[shape] = math.exp(sum(w * math.log(ratios[k]) for k, w in weights.items()) / sum(weights.values()))
    return found


def choose_shape(points: Points, times_us: Mapping[str, float], best_us: Mapping[str, float]) -> str | None:
    """The shape at which a candidate with these times should be timed next, None if at none.

    best_us are the times to beat, by shape; without them all shapes are timed.
    """
    left = [shape for shape in points if shape not in times_us]
    if not left or not all(shape in best_us for shape in points) or len(points) <= APART:
        return left[0] if left else None
    if len(times_us) < APART:
        return max(left, key=lambda s: _stand_apart(points, s, times_us))
    ratios = {shape: us / best_us[shape] for shape, us in times_us.items()}
    expected = interpolate_ratios(points, ratios)
    shape = min(left, key=lambda s: expected[s])
    lost = sum(ratio > 1.0 for ratio in ratios.values())
    hopeless = expected[shape] > HOPE or lost >= APART + max(LOST, len(points) // 6)
    return None if hopeless else shape


def _stand_apart(points: Points, shape: str, timed: Mapping[str, float]) -> float:
    """How far a shape lies from the timed ones; without any, from the middle."""
    if timed:
        return min(math.dist(points[shape], points[other]) for other in timed)
    return math.dist(points[shape], [fmean(axis) for axis in zip(*points.values())])


def is_better_somewhere(times_us: Mapping[str, float], best_us: Mapping[str, float]) -> bool:
    """Whether a candidate beats the best times (us by shape) at a shape: of several shapes by a gain that counts."""
    least = 1.0 if len(best_us) < 2 else 1.0 / (1.0 + LEAST_GAIN)
    return any(us < least * best_us.get(shape, math.inf) for shape, us in times_us.items())


def is_settled(points: Points, times_us: Mapping[str, float], best_us: Mapping[str, float]) -> bool:
    """Whether these times, of which some may be missing, say enough of a candidate beside these best times."""
    if len(points) == 1:
        return any(us > FAR * best_us.get(shape, math.inf) for shape, us in times_us.items())
    return choose_shape(points, times_us, best_us) is None
