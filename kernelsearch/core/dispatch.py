"""What a table runs at which size: a decision tree over the sizes of a task's shapes, fitted to all known times."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence, Set

from kernelsearch.core.decision_tree import Costs, Sizes, Tree, fit_tree
from kernelsearch.core.tree_walk import choose
from kernelsearch.core.types import ShapeFact, is_gain

Times = Mapping[str, float]

CORNERS = 16
"""Sizes that are larger than one shape's, at most."""
LOSES = 100.0
"""What running a candidate costs at a shape where it was not timed, or another is faster by a gain: too much."""


def fit_dispatch(
    shapes: Sequence[ShapeFact], times: Mapping[str, Times], drawn: Sequence[ShapeFact] = ()
) -> dict[str, Tree]:
    """A tree over the parameters that are numbers, for each group of shapes: what the others are (`dtype=float16`).

    times are those of each candidate by shape in any unit, by its name: it does not run where one is not known, or
    where another is faster by a gain; at drawn shapes, between the others, a loss is no more than it is. Every shape
    needs the time of one candidate.
    """
    shapes, least = (*shapes, *drawn), dict.fromkeys((s.key for s in drawn), math.inf)
    best = {s.key: min(known[s.key] for known in times.values() if s.key in known) for s in shapes}
    groups, sizes = {s.key: _split(s)[0] for s in shapes}, {s.key: _split(s)[1] for s in shapes}
    found = {}
    for group in dict.fromkeys(groups[s.key] for s in shapes):
        own = [s.key for s in shapes if groups[s.key] == group]
        varying = [n for n, size in sizes[own[0]].items() if any(sizes[key].get(n) != size for key in own)]
        costs = [
            {name: _cost(known.get(key, math.inf) / best[key], least.get(key)) for name, known in times.items()}
            for key in own
        ]
        at = [{n: sizes[key][n] for n in varying} for key in own]
        timed = [n for n, key in enumerate(own) if key not in least]
        runs = {name: {place for place, n in enumerate(timed) if own[n] in known} for name, known in times.items()}
        corners = [*list_corners([at[n] for n in timed], runs)]
        found[group] = fit_tree([*at, *(c for c, _ in corners)], [*costs, *(c for _, c in corners)])
    return found


def list_corners(shapes: Sequence[Sizes], runs: Mapping[str, Set[int]]) -> Iterator[tuple[Sizes, Costs]]:
    """Sizes that are together larger than at a timed shape, and what each candidate costs there: too much if that shape
    is too large for it.

    runs are the places of the shapes at which a candidate was timed. One is too large for it if it was timed neither
    there nor at a larger one, as where shared memory does not hold its blocks; other sizes of timed shapes may go
    together with these. Sizes at which nothing else runs are not listed.
    """
    most = {name: max(sizes[name] for sizes in shapes) for name in (shapes[0] if shapes else ())}

    def is_within(sizes: Sizes, other: Sizes) -> bool:
        return all(sizes[name] <= other[name] for name in most)

    def find_too_large(places: Set[int]) -> list[Sizes]:
        return [s for s in shapes if not any(is_within(s, shapes[place]) for place in places)]

    large = {name: find_too_large(places) for name, places in runs.items()}
    corners = list[Sizes]()
    for sizes in (s for s in shapes if any(s in own for own in large.values())):
        ends = [(most[name], size) if size < most[name] else (size,) for name, size in sizes.items()]
        raised = itertools.islice(itertools.product(*ends), CORNERS)
        corners += (c for c in (dict(zip(sizes, values, strict=True)) for values in raised) if c not in shapes)
    for number, corner in enumerate(corners):
        costs = {name: LOSES * any(is_within(s, corner) for s in own) for name, own in large.items()}
        if corner not in corners[:number] and min(costs.values()) < LOSES:
            yield corner, costs


def choose_all(trees: Mapping[str, Tree], shapes: Sequence[ShapeFact]) -> Iterator[str]:
    """For each shape, the name of what the trees serve there."""
    for s in shapes:
        group, sizes = _split(s)
        yield choose(trees[group], sizes)


def find_regrets(trees: Mapping[str, Tree], shapes: Sequence[ShapeFact], times: Mapping[str, Times]) -> Iterator[float]:
    """For each shape, the time of what the trees serve there over the least time of all, less 1."""
    for s, served in zip(shapes, choose_all(trees, shapes), strict=True):
        yield times[served][s.key] / min(known[s.key] for known in times.values()) - 1.0


def _split(shape: ShapeFact) -> tuple[str, dict[str, float]]:
    """A shape's parameters that are no numbers, in words, and those that are."""
    sizes = {n: float(v) for n, v in shape.params.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    return " ".join(f"{n}={v}" for n, v in shape.params.items() if n not in sizes), sizes


def _cost(ratio: float, least: float | None) -> float:
    """What a candidate costs with this many times the best time; least is what is too much, None: any gain is."""
    return LOSES if (is_gain(ratio) if least is None else ratio >= least) else math.log(ratio)
