"""Planted values: in each line of a tensor one element alone decides what is largest, least, any or all.

Of normal values in long rows the last one is seldom the largest, and no threshold has all others on its other side. So
a line has values of one sign and one of the other, or a zero among others, or zeros and one that is none; this one is
the line's last, its first, one beside an edge of blocks that are powers of 2, or any. Lines are rows, then the axes
before them, then all that follows an axis, as a reduction may run over any of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch

from kernelsearch.verify.domains import is_data

SELECTIONS = frozenset(
    "all amax amin aminmax any argmax argmin argsort count_nonzero cummax cummin kthvalue max max_pool1d max_pool2d "
    "max_pool2d_with_indices max_pool3d_with_indices median min mode msort nanmedian nonzero scatter_reduce sort topk "
    "unique2 unique_dim".split()
)
"""Operations (`aten`) whose results few elements may decide."""
PLACES, KINDS = 4, 4
"""Where in a line an element is planted, and the kinds of values of it and the others."""


def decides_by_few(names: Iterable[str]) -> bool:
    """Whether an operation of these names has results that few elements may decide."""
    return any(name.strip("_") in SELECTIONS for name in names)


def list_plants(shape: Sequence[int]) -> list[tuple[int, int, int]]:
    """(The first axis of a line, the one behind its last, which of its draws) for each case of a shape."""
    last = len(shape)
    spans = [(a, a + 1) for a in reversed(range(last))] + [(a, last) for a in reversed(range(last - 1))]
    spans = [(a, b) for a, b in spans if shape[a] > 1 and (b == a + 1 or math.prod(shape[a + 1 : b]) > 1)]
    spans = spans or [(0, last)]
    turns = [-(-PLACES * KINDS * math.prod(shape[a:b]) // max(1, math.prod(shape))) for a, b in spans]
    return [(*span, turn) for turn in range(max(turns)) for span, own in zip(spans, turns, strict=True) if turn < own]


def count_plants(inputs: Sequence[object]) -> int:
    """How many successive seeds have all cases of the largest of these inputs, for each of those like it."""
    tensors = [x for x in inputs if isinstance(x, torch.Tensor) and x.numel()]
    floats = [x for x in tensors if is_data(x)]
    most = max((x.dim() for x in floats or tensors), default=0)
    lengths = [len(list_plants(x.shape)) for x in floats or tensors if x.dim() == most]
    return max(lengths, default=1) * (len(lengths) if floats else 1)


def plant(noise: torch.Tensor, seed: int, generator: torch.Generator) -> torch.Tensor:
    """Values of noise's shape, from -1 to 1; successive seeds have all cases."""
    plans = list_plants(noise.shape)
    first, last, turn = plans[seed % len(plans)]
    axes = [a for a in range(noise.dim()) if not first <= a < last] + [*range(first, last)]
    shape = [noise.shape[a] for a in axes]
    sizes = noise.permute(axes).reshape(-1, math.prod(noise.shape[first:last])).abs() / 8 + 0.25
    count, width = sizes.shape
    which = torch.arange(count, device=noise.device) + turn * count
    powers = [2**p for p in range(4, 15) if 2**p < width]
    edges = sorted({width // 2, *(e for p in powers for e in (p - 1, p, width // p * p - 1, width // p * p % width))})
    draw = torch.randint(0, 2**30, (2, count), generator=generator, device=noise.device)
    beside = torch.tensor(edges, device=noise.device)[draw[0] % len(edges)]
    places = torch.stack([torch.full_like(which, width - 1), torch.zeros_like(which), beside, draw[1] % width])
    at = places.gather(0, (which % PLACES)[None])[0]
    kind = (which // PLACES % KINDS)[:, None]
    alone = torch.arange(width, device=noise.device) == at[:, None]
    signs = torch.where(kind == 0, -1.0, 1.0) * torch.where(alone & (kind < 2), -1.0, 1.0)
    none = ((kind == 2) & alone) | ((kind == 3) & ~alone)
    signs = torch.where(kind == 3, (draw[1] % 2 * 2 - 1)[:, None], signs)
    values = torch.where(none, 0.0, sizes * signs).to(noise.dtype)
    return values.reshape(shape).permute([axes.index(a) for a in range(noise.dim())])


def fill_range(values: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """The values over a range."""
    return (low + high) / 2 + values / values.abs().amax().clamp_min(1.0) * ((high - low) / 2)


def plant_between(shape: torch.Size, least: int, most: int, seed: int, generator: torch.Generator) -> torch.Tensor:
    """Integers of which all in a line but one are the least or the largest, and that one is the other."""
    values = plant(torch.ones(shape), seed, generator)
    return torch.where(values > 0, most, least)
