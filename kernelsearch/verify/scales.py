"""Secret scales: how many octaves each row, run or block of a tensor is larger or smaller than another; sums of 0.

`regimes` says which scales a verdict has, and how likely it misses a band of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

MIDDLE = math.log2(1e4)
"""Octaves from 1 to the largest and to the least scale of most values."""
SINGLE = 64
"""Rows of which each has its own scale; of more rows, neighbours may share one."""


def count_runs(length: int, longest: int, generator: torch.Generator) -> torch.Tensor:
    """For each of length places the number of its run; a run has up to about `longest` neighbours."""
    draw: dict[str, Any] = {"generator": generator, "device": generator.device}
    mean = float(longest ** torch.rand((), **draw))
    cuts = torch.rand(length, **draw) < 1 / mean
    cuts[:1] = False
    return cuts.cumsum(0)


def cancel_pairs(whole: torch.Tensor, seed: int, generator: torch.Generator) -> torch.Tensor:
    """Whole numbers of which in one row in four each pair, some power of two apart, has the sum 0, as blocks and the
    row have then without being 0. The seed says along which axis.
    """
    axis = -1 - seed % max(1, whole.dim())
    rows, draw = whole.movedim(axis, -1), dict[str, Any](generator=generator, device=whole.device)
    width = rows.shape[-1]
    if width < 2:
        return whole
    apart, column = 1 << int(torch.randint(0, width.bit_length() - 1, (), **draw)), torch.arange(width).to(whole.device)
    first = column & ~apart
    signs = torch.where(first + apart < width, 1 - 2 * (column & apart > 0).int(), 0)
    chosen = torch.rand((*rows.shape[:-1], 1), **draw) < 0.25
    return torch.where(chosen, rows[..., first] * signs, rows).movedim(-1, axis)


GOLDEN = 0x9E3779B97F4A7C15
"""The golden ratio's fraction of 2**64."""


def draw_octaves(
    count: int, ends: Sequence[tuple[float, float]], generator: torch.Generator, seed: int | None = None
) -> torch.Tensor:
    """Exponents, log-uniform over these intervals: steps of the golden ratio from a secret start, in secret order.

    Of successive seeds one begins where the other ends; without one the generator draws the start.
    """
    draw: dict[str, Any] = {"generator": generator, "device": generator.device}
    start = float(torch.rand((), **draw)) if seed is None else seed * count * GOLDEN % 2**64 / 2**64
    steps = torch.arange(count, device=generator.device, dtype=torch.float64) * (GOLDEN / 2**64)
    places = (start + steps) % 1.0 * sum(high - low for low, high in ends)
    places = places[torch.randperm(count, **draw)]
    result = torch.full_like(places, ends[0][0])
    for low, high in ends:
        inside = places >= 0
        result = torch.where(inside, low + places.clamp(max=high - low), result)
        places = places - (high - low)
    return result


def grid_scales(value: torch.Tensor, rows: int | None, alone: bool) -> tuple[int, ...]:
    """The shape of the scales of a tensor's rows, which it is multiplied by.

    Rows are along the axis that the output keeps, and along all axes but the last where that is the first axis of a
    matrix, or of a tensor that is alone with its shape: of three alike, the rows of two may be summed over. A tensor
    that has no such axis has one scale.
    """
    axis = find_mixing_axis(value, rows)
    if value.dim() == 1:
        return tuple(value.shape)
    if rows is not None and value.shape[axis] != rows:
        return (1,) * value.dim()
    if axis == 0 and (value.dim() == 2 or alone):
        return (*value.shape[:-1], 1)
    return tuple(n if a == axis else 1 for a, n in enumerate(value.shape))


@dataclass(frozen=True)
class Draw:
    """What one tensor's values are drawn by; grid is the shape of its scales, room the largest value that fits."""

    generator: torch.Generator
    seed: int
    position: int
    rows: int | None
    grid: tuple[int, ...]
    room: float
    exponentials: bool
    number: float

    def scale(self, *ends: tuple[float, float], from_seed: bool = False) -> torch.Tensor:
        """A scale for each row, or for each run of many rows or of a vector, between powers of two."""
        count = math.prod(self.grid)
        runs = count_runs(count, 1 if len(self.grid) > 1 and count <= SINGLE else max(1, count // 32), self.generator)
        seed = self.seed * (2 * self.position + 1) + self.position if from_seed else None
        octaves = draw_octaves(int(runs[-1]) + 1, ends, self.generator, seed)
        return torch.exp2(octaves[runs]).reshape(self.grid).float()


def find_mixing_axis(value: torch.Tensor, rows: int | None) -> int:
    """The axis as long as the output's first one: the first axis, else the last that is; 0 if none is."""
    if rows is None or value.shape[0] == rows:
        return 0
    return next((axis for axis in range(value.dim() - 1, -1, -1) if value.shape[axis] == rows), 0)


def step_rarely(noise: torch.Tensor, dtype: torch.dtype, how: Draw) -> torch.Tensor | None:
    """Zeros but for some steps of a dtype that has none of 1e-4, so rare that their deviation is that; else None."""
    eps, length = torch.finfo(dtype).eps, noise.numel() / max(1, math.prod(how.grid))
    if 4 * eps <= 2**-MIDDLE:
        return None
    least = max(-2 * (MIDDLE + math.log2(eps)), min(1 - math.log2(max(length, 1)), -2.0))
    shares = how.scale((least, max(least, -5.0)))
    return (torch.rand(noise.shape, generator=how.generator, device=noise.device) < shares) * eps
