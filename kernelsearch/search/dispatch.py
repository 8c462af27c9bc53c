"""What a table runs at which size: a decision tree over the sizes of a task's shapes, fitted to all measured times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kernelsearch.core.decision_tree import Tree, fit_tree
from kernelsearch.core.timed_shapes import interpolate_ratios, place_shapes
from kernelsearch.core.types import ShapeFact

Times = Mapping[str, float]


def fit_dispatch(shapes: Sequence[ShapeFact], times_us: Mapping[str, Times]) -> dict[str, Tree]:
    """The trees by what is no size (`dtype=float16`, empty where all is), over the numbers that differ.

    times_us are the times of each candidate by shape, by its name; where one was not timed, its neighbours say what to
    expect. Every shape needs the time of one candidate.
    """
    points = place_shapes(shapes)
    best = {s.key: min(times[s.key] for times in times_us.values() if s.key in times) for s in shapes}
    ratios = {
        name: interpolate_ratios(points, {s: us / best[s] for s, us in times.items() if s in best})
        for name, times in times_us.items()
    }
    groups: dict[str, list[ShapeFact]] = {}
    for shape in shapes:
        groups.setdefault(" ".join(f"{n}={v}" for n, v in shape.params.items() if not _is_size(v)), []).append(shape)
    return {group: _fit_group(own, ratios) for group, own in groups.items()}


def _fit_group(shapes: Sequence[ShapeFact], ratios: Mapping[str, Times]) -> Tree:
    first = shapes[0].params
    varying = [n for n, v in first.items() if _is_size(v) and any(s.params.get(n) != v for s in shapes)]
    sizes = [{name: float(shape.params[name]) for name in varying} for shape in shapes]
    costs = [{name: math.log(of[shape.key]) for name, of in ratios.items()} for shape in shapes]
    return fit_tree(sizes, costs)


def _is_size(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
