"""Grids as expressions of tiles, where the launcher's is a tuple: `(cdiv(n, 256),)` says nothing of BLOCK=256.

What the launcher passes at all shapes shows which size the tile divides. With the grid as an expression of the tile,
the tile's size can be tuned.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from triton.runtime.autotuner import Autotuner

from kernelsearch.core.types import LaunchFact, TensorFact
from kernelsearch.kernel.expressions import cdiv
from kernelsearch.kernel.source import Kernel
from kernelsearch.tasks.reach import list_decorators
from kernelsearch.tasks.space import common_value, is_tunable


def tie_grids(seed: Kernel, kernels: Mapping[str, Any], launches: Sequence[LaunchFact]) -> dict[str, str]:
    """The seed's grids, with those of launches whose tuples follow from a tile at every shape, by site.

    kernels are the live ones by site; an autotuner's stay as they are, since its configs change the tiles.
    """
    grids = dict(seed.grid)
    for site, kernel in kernels.items():
        facts = [launch for launch in launches if launch.site == site]
        given = [launch.grid for launch in facts if launch.grid is not None]
        tuned = any(isinstance(d, Autotuner) for d in list_decorators(kernel))
        if site in grids or tuned or not facts or len(given) < len(facts):
            continue
        axes = {f"grid({axis})": [(*grid, 1, 1)[axis] for grid in given] for axis in range(3)}
        tied = {axis: text for axis, counts in axes.items() if (text := _find_tile(seed, site, facts, counts))}
        if tied:
            grids[site] = f"({', '.join(tied.get(axis, axis) for axis in axes)})"
    return grids


def _find_tile(seed: Kernel, site: str, facts: Sequence[LaunchFact], counts: Sequence[int]) -> str:
    """The count of programs as a size divided by a tile; empty where no size gives it, or where it never changes."""
    if len(set(counts)) == 1:
        return ""
    for tile in seed.function(site).constexprs:
        value = common_value(tile, facts)
        if is_tunable(tile, value) and value > 1:
            for text, sizes in _list_sizes(facts):
                if [cdiv(size, value) for size in sizes] == list(counts):
                    return f"cdiv({text}, {tile})"
    return ""


def _list_sizes(facts: Sequence[LaunchFact]) -> Iterator[tuple[str, list[int]]]:
    """What launches pass as numbers, as expressions of the launch spec, with the values: the likelier ones first."""
    given = {name: [fact.args.get(name) for fact in facts] for name in facts[0].args}
    for name, values in given.items():
        if all(type(value) is int for value in values):
            yield name, values
    for name, values in given.items():
        if all(isinstance(value, TensorFact) for value in values):
            for axis in range(min(len(value.shape) for value in values)):
                yield f"shape({name}, {axis})", [value.shape[axis] for value in values]
            yield f"numel({name})", [math.prod(value.shape) for value in values]
