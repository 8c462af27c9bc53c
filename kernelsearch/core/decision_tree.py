"""A decision tree over sizes that says what runs where: small, readable, and a function of the sizes alone.

It is grown and pruned as a regression tree is (Breiman et al., 1984): at each node the question that lowers the cost
most, `size is at most limit`; those that were not worth asking go. Limits lie midway between the logarithms of sizes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WORTH = 0.001
"""What a question costs, as a share of the mean cost over all sizes: one that gains less is not asked."""

Sizes = Mapping[str, float]
Costs = Mapping[str, float]


@dataclass(frozen=True)
class SizeTest:
    """A question: whether the size of this name is at most the limit, and what follows if it is, and if not."""

    name: str
    limit: float
    below: Tree
    above: Tree


Tree = SizeTest | str
"""A question, or the name of what runs."""


def fit_tree(sizes: Sequence[Sizes], costs: Sequence[Costs]) -> Tree:
    """The tree for these sizes, of which each has numbers of the same names.

    costs are, for each of them, what it costs to run a candidate there, by the candidate's name: the logarithm of its
    time over the best time, for example. Of equal candidates the first name of the first costs is taken.
    """
    return _grow(list(zip(sizes, costs, strict=True)), len(sizes))[0]


def choose(tree: Tree, sizes: Sizes) -> str:
    """The name of what runs at these sizes."""
    while isinstance(tree, SizeTest):
        tree = tree.below if sizes[tree.name] <= tree.limit else tree.above
    return tree


def as_json(tree: Tree) -> Any:
    """The tree as plain data: a name, or {"size", "at_most", "then", "else"}."""
    if isinstance(tree, str):
        return tree
    return {"size": tree.name, "at_most": tree.limit, "then": as_json(tree.below), "else": as_json(tree.above)}


def from_json(data: Any) -> Tree:
    """The tree that `as_json` gave."""
    if isinstance(data, str):
        return data
    return SizeTest(data["size"], data["at_most"], from_json(data["then"]), from_json(data["else"]))


def format_tree(tree: Tree, names: Mapping[str, str] | None = None) -> list[str]:
    """The tree in words, a line for each question and each answer; names are how candidates are called."""
    if isinstance(tree, str):
        return [(names or {}).get(tree, tree)]
    below, above = format_tree(tree.below, names), format_tree(tree.above, names)
    head = f"{tree.name} <= {tree.limit:g}: "
    lines = [head + below[0]] if len(below) == 1 else [head.rstrip(), *(f"  {line}" for line in below)]
    return [*lines, *above]


def _grow(rows: list[tuple[Sizes, Costs]], count: int) -> tuple[Tree, float]:
    """The tree for these rows of `count`, and what it costs, with WORTH for each question."""
    totals = _sum_costs(rows)
    best = min(totals, key=lambda name: round(totals[name], 9))
    splits = _list_splits(rows, totals) if totals[best] >= WORTH * count else []
    if not splits:
        return best, totals[best]
    _, _, name, limit = min(splits)
    (below, cost), (above, rest) = (
        _grow([row for row in rows if (row[0][name] <= limit) is side], count) for side in (True, False)
    )
    cost += rest + WORTH * count
    return (SizeTest(name, limit, below, above), cost) if cost < totals[best] else (best, totals[best])


def _sum_costs(rows: list[tuple[Sizes, Costs]]) -> dict[str, float]:
    return {name: math.fsum(costs[name] for _, costs in rows) for name in rows[0][1]}


def _list_splits(rows: list[tuple[Sizes, Costs]], totals: Costs) -> list[tuple[float, int, str, float]]:
    """(What one candidate each costs on both sides, the size's place and name, the limit) for each limit between sizes.

    Limits are whole numbers where there is one.
    """
    splits = []
    for place, name in enumerate(rows[0][0]):
        ordered, below = sorted(rows, key=lambda row: row[0][name]), dict.fromkeys(totals, 0.0)
        for (sizes, costs), (following, _) in itertools.pairwise(ordered):
            below = {one: below[one] + costs[one] for one in below}
            low, high = sizes[name], following[name]
            if low < high:
                between = math.sqrt(low * high) if low > 0 else (low + high) / 2
                middle = math.floor(between)
                limit = float(middle) if low <= middle < high else between
                both = min(below.values()) + min(totals[one] - below[one] for one in below)
                splits.append((round(both, 9), place, name, limit))
    return splits
