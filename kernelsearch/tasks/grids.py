"""Grids as expressions of tiles, where the launcher's is a tuple: `(cdiv(n, 256),)` says nothing of BLOCK=256.

The kernel's text says which tiles divide an axis (`tile_uses.py`), and mostly which sizes they divide; what the
launcher passes at all shapes must agree. With the grid as an expression of the tiles, their sizes can be tuned. What
has as many elements as there are programs, as a buffer for their sums, would not follow: then the grid stays.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from triton.runtime.autotuner import Autotuner

from kernelsearch.core.errors import ExpressionError
from kernelsearch.core.types import LaunchFact, TensorFact
from kernelsearch.kernel.expressions import Scope, cdiv, evaluate
from kernelsearch.kernel.source import Kernel
from kernelsearch.tasks.reach import list_decorators
from kernelsearch.tasks.space import common_value, is_tunable, list_shared
from kernelsearch.tasks.tile_uses import TileUses

Size = tuple[str, list[int]]
"""An expression of the launch spec with its values at all launches."""


def tie_grids(seed: Kernel, kernels: Mapping[str, Any], launches: Sequence[LaunchFact]) -> dict[str, str]:
    """The seed's grids, with those of launches whose tuples follow from tiles at every shape, by site.

    kernels are the live ones by site; an autotuner's stay as they are, since its configs change the tiles.
    """
    grids, shared = dict(seed.grid), list_shared(seed, kernels, launches)
    by_site = {site: [launch for launch in launches if launch.site == site] for site in kernels}
    for site, facts in by_site.items():
        given = [launch.grid for launch in facts if launch.grid is not None]
        tuned = any(isinstance(d, Autotuner) for d in list_decorators(kernels[site]))
        if site in grids or tuned or not facts or len(given) < len(facts):
            continue
        passed = [size for one in by_site.values() if len(one) == len(facts) for size in _list_sizes(one)]
        axes, uses = [], TileUses(seed.function(site))
        named = {name: common_value(name, facts) for name in seed.function(site).constexprs}
        tiles = {name: value for name, value in named.items() if is_tunable(name, value, uses) and value > 1}
        for axis in range(3):
            counts = [(*grid, 1, 1)[axis] for grid in given]
            axes.append(_tie_axis(uses, tiles, axis, facts, counts, passed, shared) or f"grid({axis})")
        if axes != ["grid(0)", "grid(1)", "grid(2)"]:
            grids[site] = f"({', '.join(axes)})"
    return grids


def _tie_axis(
    uses: TileUses,
    tiles: Mapping[str, int],
    axis: int,
    facts: Sequence[LaunchFact],
    counts: list[int],
    passed: Sequence[Size],
    shared: Mapping[str, int],
) -> str:
    """The number of programs along an axis as an expression of the tiles that divide it; empty where none is sure.

    passed are the sizes that the call's launches get, shared the tiles that share out a buffer.
    """
    tiles = {name: value for name, value in tiles.items() if axis in (uses.list_axes(name) or ())}
    for name, value in tiles.items():
        if set(counts) == {value} and (name in shared or all(set(v) != {value} for n, v in passed if n != name)):
            return name
    # What the launcher gives by the number of programs stays as it is when a tile changes.
    if len(set(counts)) > 1 and any(values == counts for _, values in passed):
        return ""
    tiles = {n: v for n, v in tiles.items() if n not in shared and not uses.is_order(n)}
    sizes = list(_list_sizes(facts))
    divided = [[size for text in uses.list_divided(n, axis) for size in _evaluate(text, facts)] for n in tiles]
    told = sum(map(bool, divided))
    varies = any(len(set(values)) > 1 for own in divided for _, values in own)
    if not tiles or told < len(tiles) - 1 or not (len(set(counts)) > 1 or (varies and told == len(tiles))):
        return ""
    for more in ([("", [1] * len(counts))], [size for size in sizes if max(size[1]) > 1]):
        for *chosen, (factor, times) in itertools.product(*(own or sizes for own in divided), more):
            for divide, form in ((cdiv, "cdiv({}, {})"), (operator.floordiv, "({}) // {}")):
                each = [[divide(n, tile) for n in ns] for (_, ns), tile in zip(chosen, tiles.values(), strict=True)]
                if [math.prod(column) for column in zip(times, *each, strict=True)] == counts:
                    parts = [form.format(text, tile) for (text, _), tile in zip(chosen, tiles, strict=True)]
                    return " * ".join(filter(None, [*parts, factor]))
    return ""


def _evaluate(text: str, facts: Sequence[LaunchFact]) -> list[Size]:
    """A kernel's own expression of its arguments with its values; none where it is no integer of the launch spec's."""
    try:
        values = [evaluate(text, Scope(fact.args)) for fact in facts]
    except ExpressionError:
        return []
    return [(text, values)] if all(type(v) is int for v in values) else []  # type: ignore[list-item]


def _list_sizes(facts: Sequence[LaunchFact]) -> Iterator[Size]:
    """What launches pass as numbers, as expressions of the launch spec, with the values: the likelier ones first.

    Of tensors each axis, all elements, and those of several axes that follow each other.
    """
    given = {name: [fact.args.get(name) for fact in facts] for name in facts[0].args}
    for name, values in given.items():
        if len(numbers := [value for value in values if type(value) is int]) == len(values):
            yield name, numbers
    for name, values in given.items():
        if len(tensors := [value for value in values if isinstance(value, TensorFact)]) == len(values):
            axes = [f"shape({name}, {axis})" for axis in range(min(len(tensor.shape) for tensor in tensors))]
            for first, last in sorted(itertools.combinations(range(len(axes) + 1), 2), key=lambda p: p[1] - p[0]):
                sizes = [math.prod(tensor.shape[first:last]) for tensor in tensors]
                yield " * ".join(axes[first:last]), sizes
            yield f"numel({name})", [math.prod(tensor.shape) for tensor in tensors]
