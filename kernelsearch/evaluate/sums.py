"""Integers and addresses that are sums of parts which vary along different axes, not added up before they must be.

An address `base + row * stride + column` of a tile would be an array as large as the tile; as a sum it is one small
array for each axis, and an access whose parts are evenly spaced is a strided view of memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import torch

Tensor = torch.Tensor
MOST_PART = 1 << 14
"""Elements of a part that is looked at for even spaces."""


@final
class LazySum:
    """A sum of int64 parts, whose value has the dtype."""

    def __init__(self, parts: list[Tensor], dtype: torch.dtype) -> None:
        self.parts, self.dtype = parts, dtype

    @cached_property
    def whole(self) -> Tensor:
        """The value as one tensor."""
        return sum(self.parts[1:], self.parts[0]).to(self.dtype)


@dataclass(frozen=True)
class Pair:
    """A value as it is, and as it would be in another world: without wrapping around, or with buffers elsewhere."""

    here: Tensor | LazySum
    there: Tensor | LazySum


def take_here(value: Any) -> Any:
    """The value as it is."""
    return value.here if type(value) is Pair else value


def take_there(value: Any) -> Any:
    """The value as it would be."""
    return value.there if type(value) is Pair else value


def add_up(value: Tensor | LazySum) -> Tensor:
    """The value as one tensor."""
    return value.whole if type(value) is LazySum else value


def add(a: Tensor | LazySum, b: Tensor | LazySum, dtype: torch.dtype) -> Tensor | LazySum:
    """a + b; a LazySum if that would make a tensor larger than both, and nothing can overflow."""
    parts = list(a.parts) if type(a) is LazySum else [a]
    for new in b.parts if type(b) is LazySum else [b]:
        for i, old in enumerate(parts):
            if _count_together(old, new) <= max(old.numel(), new.numel()):
                parts[i] = old + new  # both of the sum's dtype, or int64
                break
        else:
            parts.append(new)
    if len(parts) == 1:
        return parts[0].to(dtype)
    ends = [part.aminmax() for part in parts]
    low, high = sum(int(e[0]) for e in ends), sum(int(e[1]) for e in ends)
    made, info = LazySum([part.to(torch.int64) for part in parts], dtype), torch.iinfo(dtype)
    return made if info.min <= low and high <= info.max else made.whole


def _count_together(a: Tensor, b: Tensor) -> int:
    """Elements of a + b; shapes of another rank are spread as torch does it."""
    if a.dim() != b.dim():
        return math.prod(torch.broadcast_shapes(a.shape, b.shape))
    return math.prod(map(max, a.shape, b.shape))


def find_steps(value: Tensor | LazySum, full: tuple[int, ...]) -> tuple[int, list[Tensor]] | None:
    """A sum of this shape as its first element and what each axis adds to it; None where it is no such sum."""
    start, along = 0, [torch.zeros(n, dtype=torch.int64) for n in full]
    for part in value.parts if type(value) is LazySum else [value]:
        if part.numel() > MOST_PART:
            return None
        first = int(part.reshape(-1)[0])
        start, model = start + first, None
        for axis in range(part.dim()):
            if part.shape[axis] == 1:
                continue
            line = part[tuple(slice(None) if i == axis else 0 for i in range(part.dim()))] - first
            along[axis] = along[axis] + line
            shaped = line.reshape([-1 if i == axis else 1 for i in range(part.dim())])
            model = shaped if model is None else model + shaped
        if model is not None and model.dim() > 1 and not torch.equal((model + first).expand_as(part), part):
            return None
    return start, along


def find_stride(line: Tensor) -> int | None:
    """The step between the elements of an evenly spaced line, None for others; 0 for a single element."""
    step = int(line[1]) if len(line) > 1 else 0
    if len(line) > 2 and (int(line[-1]) != step * (len(line) - 1) or not _is_even(line, step)):
        return None
    return step


def _is_even(line: Tensor, step: int) -> bool:
    return torch.equal(line, torch.arange(len(line)) * step)
