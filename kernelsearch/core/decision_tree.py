"""A decision tree over sizes that says what runs where: small, readable, and a function of the sizes alone.

It is grown and pruned as a regression tree is (Breiman et al., 1984), but for the few questions at each node that lower
the cost most, `size is at most limit` or `size is a multiple of 16` (Triton specialises by that), of 8 or of 4 (the
copy engine's step is 16 bytes, 8 elements of 16 bits). A question goes where it was not worth asking, or where what
follows one of its answers serves the other as well (C4.5's raising; Quinlan, 1993). Limits lie midway between the
logarithms of sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from kernelsearch.core.tree_walk import choose, holds

WORTH = 0.001
"""What a question costs, as a share of the mean cost over all sizes: one that gains less is not asked."""

Sizes = Mapping[str, float]
Costs = Mapping[str, float]
Rows = list[tuple[Sizes, Costs]]
Tree = str | Mapping[str, Any]
"""The name of what runs, or a question (see `tree_walk`)."""
STEPS = (16, 8, 4)
"""A kernel may be another, or need another way, at sizes that are no multiples of one; the first of equals counts."""
ASKED, NODES = 5, 500
"""Limits that are tried at each node, best first, and one step; where so many nodes are known, one question is."""


def fit_tree(sizes: Sequence[Sizes], costs: Sequence[Costs]) -> Tree:
    """The tree for these sizes, of which each has numbers of the same names.

    costs are, for each of them, what it costs to run a candidate there, by the candidate's name: the logarithm of its
    time over the best time, for example. Of equal candidates the first name of the first costs is taken.
    """
    return _grow(list(zip(sizes, costs, strict=True)), WORTH * len(sizes), {})


def format_tree(tree: Tree, names: Mapping[str, str] | None = None) -> list[str]:
    """The tree in words, a line for each question and each answer; names are how candidates are called."""
    if isinstance(tree, str):
        return [(names or {}).get(tree, tree)]
    below, above = format_tree(tree["then"], names), format_tree(tree["else"], names)
    limit = f"<= {tree['at_most']:g}" if "at_most" in tree else f"a multiple of {tree['multiple_of']}"
    head = f"{tree['size']} {limit}: "
    lines = [head + below[0]] if len(below) == 1 else [head.rstrip(), *(f"  {line}" for line in below)]
    return [*lines, *above]


def _grow(rows: Rows, asking: float, known: dict[tuple[int, ...], Tree]) -> Tree:
    """The tree for these rows that costs least, if asking is what a question costs; known are trees of other rows."""
    key = tuple(map(id, rows))
    if key in known:
        return known[key]
    totals = {name: math.fsum(costs[name] for _, costs in rows) for name in rows[0][1]}
    best = min(totals, key=lambda name: round(totals[name], 9))
    splits = sorted(_list_splits(rows, totals), key=itemgetter(0, 1, 2)) if totals[best] >= asking else []
    limits, steps = ([s for s in splits if ("at_most" in s[-1]) is kind] for kind in (True, False))
    asked = [*limits[:ASKED], *steps[:1]] if len(known) < NODES else splits[:1]
    trees: list[Tree] = [best]
    for _, _, _, question in asked:
        sides = ([row for row in rows if holds(question, row[0]) is side] for side in (True, False))
        below, above = (_grow(side, asking, known) for side in sides)
        trees += [below, above, {**question, "then": below, "else": above}]

    def cost(tree: Tree) -> float:
        return round(math.fsum(costs[choose(tree, sizes)] for sizes, costs in rows) + asking * _count(tree), 9)

    known[key] = min(trees, key=cost)
    return known[key]


def _count(tree: Tree) -> int:
    """The number of a tree's questions."""
    return 0 if isinstance(tree, str) else 1 + _count(tree["then"]) + _count(tree["else"])


def _list_splits(rows: Rows, totals: Costs) -> list[tuple[float, int, float, dict[str, Any]]]:
    """(What one candidate each costs on both sides, the size's place, the limit, the question) for each question.

    Limits are whole numbers where there is one.
    """
    splits = []

    def add(place: int, limit: float, below: Costs, question: dict[str, Any]) -> None:
        both = min(below.values()) + min(totals[one] - below[one] for one in below)
        splits.append((round(both, 9), place, limit, question))

    for place, name in enumerate(rows[0][0]):
        ordered, below = sorted(rows, key=lambda row: row[0][name]), dict.fromkeys(totals, 0.0)
        for (sizes, costs), (following, _) in itertools.pairwise(ordered):
            below = {one: below[one] + costs[one] for one in below}
            low, high = sizes[name], following[name]
            if low < high:
                between = math.sqrt(low * high) if low > 0 else (low + high) / 2
                middle = math.floor(between)
                limit = float(middle) if low <= middle < high else between
                add(place, limit, below, {"size": name, "at_most": limit})
        for step in STEPS:
            even = [costs for sizes, costs in rows if sizes[name] % step == 0]
            if 0 < len(even) < len(rows):
                below = {one: math.fsum(costs[one] for costs in even) for one in totals}
                add(place, math.inf, below, {"size": name, "multiple_of": step})
    return splits
