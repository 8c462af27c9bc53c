"""Tensors compared bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

HASHED = 2**22
"""Words that are multiplied at once: eight bytes each, where memory may be short."""
WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by their bytes."""


def as_bits(value: torch.Tensor) -> torch.Tensor:
    """The tensor as integers of the same width: -0.0 differs from 0.0, and a NaN equals itself."""
    return value.view(WHOLE.get(value.element_size(), value.dtype))


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True if shape, dtype and every bit are equal."""
    return one.shape == other.shape and one.dtype == other.dtype and torch.equal(as_bits(one), as_bits(other))


def compute_fingerprint(tensors: Sequence[torch.Tensor], secret: int) -> tuple[Any, ...]:
    """What tensors of other bits share with odds of 2**-64 at most, whoever chose them without knowing the secret.

    Beside shapes, strides and dtypes these are two sums modulo 2**64 of all words of 32 bits or fewer, each multiplied
    by a random number (Carter and Wegman, *Universal classes of hash functions*, 1979). Words differ by less than
    2**32, of which 2**31 at most divides out, so that one sum is equal with odds of 2**-33.
    """
    marks: list[Any] = []
    for tensor in tensors:
        generator = torch.Generator(device=tensor.device).manual_seed(secret)
        flat = tensor.detach().reshape(-1)
        flat = torch.view_as_real(flat).reshape(-1) if flat.is_complex() else flat
        words = flat.view(WHOLE[min(4, flat.element_size())])
        sums = torch.zeros(2, dtype=torch.int64, device=tensor.device)
        for part in words.split(HASHED):
            for number in range(2):
                factors = torch.empty(part.shape, dtype=torch.int64, device=part.device)
                sums[number] += factors.random_(-(2**63), None, generator=generator).mul_(part).sum()
        marks.append((tuple(tensor.shape), tensor.stride(), tensor.dtype, *sums.tolist()))
    return tuple(marks)


def find_changed_input(before: Sequence[Any], after: Sequence[Any], mutates: Sequence[int]) -> int | None:
    """The position of the first input that has other bits now and may not, None if there is none."""
    for position, (old, new) in enumerate(zip(before, after)):
        if position in mutates or not isinstance(old, torch.Tensor):
            continue
        if not same_bits(old, new):
            return position
    return None
