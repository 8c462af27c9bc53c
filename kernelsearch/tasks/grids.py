"""Grids as expressions of tiles, where the launcher's is a tuple: `(cdiv(n, 256),)` says nothing of BLOCK=256.

The kernel's text says which tiles divide an axis (`tile_uses.py`), and mostly which sizes they divide; what the
launcher passes at all shapes must agree. With the grid as an expression of the tiles, their sizes can be tuned. What
has as many elements as there are programs, as a buffer for their sums, would not follow: then the grid stays.
"""

from __future__ import annotations

import ast
import itertools
import math
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
    grids = dict(seed.grid)
    for site, kernel in kernels.items():
        facts = [launch for launch in launches if launch.site == site]
        given = [launch.grid for launch in facts if launch.grid is not None]
        tuned = any(isinstance(d, Autotuner) for d in list_decorators(kernel))
        if site in grids or tuned or not facts or len(given) < len(facts):
            continue
        shared = list_shared(seed, kernels, launches)
        beside = [f for other in kernels if len(f := [x for x in launches if x.site == other]) == len(facts)]
        axes = {f"grid({axis})": [(*grid, 1, 1)[axis] for grid in given] for axis in range(3)}
        tied = {
            name: text
            for axis, (name, counts) in enumerate(axes.items())
            if (text := _tie_axis(seed, site, axis, facts, counts, beside, shared))
        }
        if tied:
            grids[site] = f"({', '.join(tied.get(axis, axis) for axis in axes)})"
    return grids


def _tie_axis(
    seed: Kernel,
    site: str,
    axis: int,
    facts: Sequence[LaunchFact],
    counts: list[int],
    beside: Sequence[Sequence[LaunchFact]],
    shared: Mapping[str, int],
) -> str:
    """The number of programs along an axis as an expression of the tiles that divide it; empty where none is sure."""
    uses, tiles = TileUses(seed.function(site)), {}
    for name in seed.function(site).constexprs:
        value = common_value(name, facts)
        if is_tunable(name, value) and value > 1 and not uses.is_order(name) and axis in (uses.list_axes(name) or ()):
            tiles[name] = value
    sizes = list(_list_sizes(facts))
    for name, value in tiles.items():
        if set(counts) == {value} and (name in shared or not _is_passed(name, value, beside)):
            return name
    # What the launcher gives by number of programs stays as it is when a tile changes.
    if len(set(counts)) > 1 and any(values == counts for f in beside for _, values in _list_sizes(f)):
        return ""
    tiles = {name: value for name, value in tiles.items() if name not in shared}
    choices = {}
    for name in tiles:
        texts = (ast.unparse(size) for size in uses.list_divided(name, axis))
        choices[name] = [(t, values) for t in dict.fromkeys(texts) if (values := _evaluate(t, facts))]
    varied = [len(set(v)) > 1 for v in (counts, *(v for own in choices.values() for _, v in own))]
    if not tiles or not (varied[0] or (any(varied) and all(choices.values()))):
        return ""
    found = _find_products(tiles, [own or sizes for own in choices.values()], sizes, counts)
    # A text that another one would contradict at other tiles is not sure.
    return next(iter(found.values())) if len(found) == 1 else ""


def _find_products(
    tiles: Mapping[str, int], choices: Sequence[Sequence[Size]], sizes: Sequence[Size], counts: list[int]
) -> dict[tuple[int, ...], str]:
    """Products of sizes divided by tiles that give the counts, by their values with smaller and larger tiles."""
    values = list(tiles.values())
    others = list(itertools.product(*((max(1, v // 2), 2 * v) for v in values)))
    for factors in ([("", [1] * len(counts))], [size for size in sizes if max(size[1]) > 1]):
        found: dict[tuple[int, ...], str] = {}
        for *divided, (text, times) in itertools.product(*choices, factors):

            def count(of: Sequence[int], divided: list[Size] = divided, times: list[int] = times) -> list[int]:
                each = [[cdiv(n, tile) for n in ns] for (_, ns), tile in zip(divided, of, strict=True)]
                return [math.prod(column) for column in zip(times, *each, strict=True)]

            if count(values) == counts:
                parts = [f"cdiv({size}, {tile})" for (size, _), tile in zip(divided, tiles, strict=True)]
                at_others = tuple(n for of in others for n in count(of))
                found.setdefault(at_others, " * ".join([*parts, *([text] if text else [])]))
        if found:
            return found
    return {}


def _is_passed(name: str, value: int, beside: Sequence[Sequence[LaunchFact]]) -> bool:
    """Whether launches get a value at all shapes in another way than by this name: as a number, or a buffer's size."""
    return any(set(values) == {value} for facts in beside for text, values in _list_sizes(facts) if text != name)


def _evaluate(text: str, facts: Sequence[LaunchFact]) -> list[int]:
    """The values of a kernel's own expression of its arguments; empty where it is no integer of the launch spec's."""
    try:
        values = [evaluate(text, Scope(fact.args)) for fact in facts]
    except ExpressionError:
        return []
    return [v for v in values if type(v) is int] if all(type(v) is int for v in values) else []


def _list_sizes(facts: Sequence[LaunchFact]) -> Iterator[Size]:
    """What launches pass as numbers, as expressions of the launch spec, with the values: the likelier ones first.

    Of tensors each axis, all elements, and those of several axes that follow each other.
    """
    given = {name: [fact.args.get(name) for fact in facts] for name in facts[0].args}
    for name, values in given.items():
        if all(type(value) is int for value in values):
            yield name, values
    for name, values in given.items():
        if all(isinstance(value, TensorFact) for value in values):
            axes = [f"shape({name}, {axis})" for axis in range(min(len(value.shape) for value in values))]
            for first, last in sorted(itertools.combinations(range(len(axes) + 1), 2), key=lambda p: p[1] - p[0]):
                sizes = [math.prod(value.shape[first:last]) for value in values]
                yield " * ".join(axes[first:last]), sizes
            yield f"numel({name})", [math.prod(value.shape) for value in values]
