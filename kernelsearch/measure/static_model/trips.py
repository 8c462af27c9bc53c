"""How often the body of a loop runs: its bounds, evaluated in every program of the grid and every turn of outer loops.

Bounds are expressions over the launch's arguments, the program's place and the turns of the loops around. The result is
the mean over the programs; above `MOST` points it is that of a sample, drawn by a fixed seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelsearch.compile.code import Loop, Scalar, fold

MOST = 1 << 16


def evaluate(value: Scalar, leaf: Callable[[tuple], Any]) -> Any:
    """The value of an expression whose names (`("arg", name)` and so on) have the values that leaf gives; None: no."""
    if value is None or isinstance(value, int):
        return value
    if len(value) == 2:
        return leaf(value)
    a, b = evaluate(value[1], leaf), evaluate(value[2], leaf)
    return None if a is None or b is None else fold(value[0], a, b)


def count_trips(loops: Sequence[Loop], grid: tuple[int, int, int], arg: Callable[[str], int | None]) -> float | None:
    """How often a program runs the body inside these loops, the outermost first; None where a bound is not known."""
    names = {n for loop in loops for end in vars(loop).values() for n in _names_of(end)}
    points: dict[tuple, Any] = {("grid", axis): grid[axis] for axis in range(3)}
    points |= _choose_programs([axis for axis in range(3) if ("pid", axis) in names], grid)
    weights: Any = np.ones(max([1, *(np.size(p) for p in points.values())]))
    weights /= weights.size

    def leaf(name: tuple) -> Any:
        return arg(name[1]) if name[0] == "arg" else points.get(name)

    for depth, loop in enumerate(loops):
        first, last, step = (evaluate(end, leaf) for end in (loop.first, loop.last, loop.step))
        if first is None or last is None or step is None or np.any(np.asarray(step) <= 0):
            return None
        turns = np.broadcast_to(np.maximum(0, -((first - last) // step)), weights.shape)
        if ("turn", depth) not in names:
            weights = weights * turns
            continue
        at, turn, stands_for = _choose_turns(turns)
        points = {n: v[at] if np.size(v) > 1 else v for n, v in points.items()} | {("turn", depth): turn}
        weights = weights[at] * stands_for
    return float(weights.sum())


def _names_of(value: Scalar) -> set[tuple]:
    if not isinstance(value, tuple):
        return set()
    return {value} if len(value) == 2 else _names_of(value[1]) | _names_of(value[2])


def _choose_programs(axes: Sequence[int], grid: tuple[int, int, int]) -> dict[tuple, np.ndarray]:
    """The places of programs along these axes: all of them, or a sample."""
    sizes = [grid[axis] for axis in axes]
    whole = math.prod(sizes)
    places = np.arange(whole) if whole <= MOST else np.random.default_rng(0).integers(whole, size=MOST)
    return {("pid", axis): p for axis, p in zip(axes, np.unravel_index(places, sizes), strict=True)} if axes else {}


def _choose_turns(turns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(The point, the turn, how many turns it stands for) of each turn of each point, or of some spread over them."""
    taken = np.minimum(turns, max(1, MOST // turns.size))
    at = np.repeat(np.arange(turns.size), taken)
    place = np.arange(at.size) - np.repeat(np.cumsum(taken) - taken, taken)
    each = turns[at] / taken[at]
    return at, np.floor((place + 0.5) * each).astype(np.int64), each
