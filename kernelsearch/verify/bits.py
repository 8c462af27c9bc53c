"""Tensors compared bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from kernelsearch.verify.pieces import split_flat

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

    Beside shapes, strides and dtypes these are sums modulo 2**64 of all words, each multiplied by a random number
    (Carter and Wegman, *Universal classes of hash functions*, 1979): a difference of 2**31 has odds of 2**-33 in one.
    """
    marks: list[Any] = []
    for tensor in tensors:
        generator = torch.Generator(device=tensor.device).manual_seed(secret)
        sums = torch.zeros(2, dtype=torch.int64, device=tensor.device)
        for (part,) in split_flat(as_bits(tensor)):
            words = part.reshape(-1).long()
            for number in range(2):
                factors = torch.empty_like(words).random_(-(2**63), None, generator=generator)
                sums[number] += (factors * words).sum()
        marks.append((tuple(tensor.shape), tensor.stride(), tensor.dtype, *sums.tolist()))
    return tuple(marks)
