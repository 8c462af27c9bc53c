"""A space as axes, for samplers: every config is a point of small integers, with distances along each axis.

Numbers keep their order and are as far apart as their ranks; of booleans, strings and mixtures any two values are
equally far apart. Nothing is read from a parameter's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from kernelsearch.core.types import Config, Value
from kernelsearch.kernel.space import Space, is_number


@dataclass(frozen=True)
class Axis:
    """One name of a space with more than one value."""

    name: str
    values: tuple[Value, ...]

    @cached_property
    def ordered(self) -> bool:
        """Whether all values are numbers."""
        return all(map(is_number, self.values))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The rank of each value."""
        by_rank = sorted(range(len(self.values)), key=lambda i: cast(float, self.values[i]) if self.ordered else i)
        return tuple(int(r) for r in np.argsort(by_rank))

    @property
    def distances(self) -> np.ndarray:
        """Distances of ranks, in [0, 1]; shape (values, values)."""
        ranks = np.arange(len(self.values), dtype=float)
        if not self.ordered:
            return 1.0 - np.eye(len(ranks))
        return np.abs(ranks[:, None] - ranks[None, :]) / (len(ranks) - 1)


class Axes:
    """The axes of a space. A point holds the rank of each axis' value; points of many configs are rows of an array."""

    def __init__(self, space: Space) -> None:
        self.fixed = {name: values[0] for name, values in space.values.items() if len(values) == 1}
        self.axes = tuple(Axis(name, values) for name, values in space.values.items() if len(values) > 1)
        self.shape = tuple(len(a.values) for a in self.axes)
        self._by_rank = [dict(zip(a.order, a.values, strict=True)) for a in self.axes]
        self._ranks = [{_key(v): r for r, v in by.items()} for by in self._by_rank]

    def point_of(self, config: Config) -> tuple[int, ...] | None:
        """The config as a point; None when a value is not in the space."""
        if any(a.name not in config for a in self.axes):
            return None
        ranks = [known.get(_key(config[a.name])) for a, known in zip(self.axes, self._ranks, strict=True)]
        return None if None in ranks else cast(tuple[int, ...], tuple(ranks))

    def config_at(self, point: np.ndarray | tuple[int, ...]) -> dict[str, Value]:
        varied = {a.name: by[int(r)] for a, by, r in zip(self.axes, self._by_rank, point, strict=True)}
        return {**self.fixed, **varied}

    def list_points(self) -> np.ndarray:
        """All points, in no particular order; shape (size, axes)."""
        return np.stack([g.ravel() for g in np.meshgrid(*map(np.arange, self.shape), indexing="ij")], axis=1)

    def draw(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Uniform points, repeats possible; shape (count, axes)."""
        return np.stack([rng.integers(n, size=count) for n in self.shape], axis=1)

    def iterate_neighbours(self, point: np.ndarray) -> Iterator[np.ndarray]:
        """Points that differ along one axis: by one rank where it is ordered, else by any other value."""
        for i, axis in enumerate(self.axes):
            near = (point[i] - 1, point[i] + 1) if axis.ordered else range(len(axis.values))
            for rank in near:
                if 0 <= rank < len(axis.values) and rank != point[i]:
                    yield np.array([*point[:i], rank, *point[i + 1 :]])


def _key(value: Value) -> tuple[bool, Value]:
    return isinstance(value, bool), value
