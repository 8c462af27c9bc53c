"""DOMAIN: what values a task's floating inputs may have, and which inputs a regime may replace; inputs near others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

import torch

from kernelsearch.verify.bits import as_bits
from kernelsearch.verify.pieces import change_in_pieces, copy_tensor, draw_bytes, holds_flags


def list_domains(inputs: Sequence[Any], names: Sequence[str], domain: Mapping[str, Any] | None) -> list[Any]:
    """The domain of each input, None where there is none."""
    return [(domain or {}).get(name) for name, _ in zip_longest(names, inputs)]


def suggest_domain(inputs: Sequence[Any], names: Sequence[str]) -> dict[str, str]:
    """A DOMAIN that inputs are inside: those that are never negative, else all of them as they are."""
    ends = {name: tuple(map(float, value.aminmax())) for name, value in zip(names, inputs) if is_data(value)}
    narrower = {
        name: "unit" if most <= 1 else "positive" if least > 0 else "nonnegative"
        for name, (least, most) in ends.items()
        if least >= 0
    }
    return narrower or dict.fromkeys(ends, "fixed")


def is_data(value: Any) -> bool:
    """True if a regime replaces this input's values."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dim() == 0 or not value.numel():
        return False
    wide = value.float() if value.dtype.itemsize < 2 else value
    return all(map(math.isfinite, map(float, wide.aminmax()))) and not holds_flags(wide)


def is_whole(value: Any) -> bool:
    """True for a tensor of integers or truth values."""
    whole = isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex())
    return whole and value.numel() > 0


def narrow(values: torch.Tensor, limit: Any) -> torch.Tensor:
    """The values brought into a domain; those outside of a range are folded back at its ends."""
    match limit:
        case None | "finite":
            return values
        case "positive":
            return values.abs().clamp_min(1e-3)
        case "nonnegative":
            return values.abs()
        case "unit":
            return torch.sigmoid(values)
        case (low, high):  # a tuple or a list
            width = high - low
            folded = low + ((values.double() - low + width) % (2 * width) - width).abs()
            return torch.where((low <= values) & (values <= high), values, folded.to(values.dtype)).clamp(low, high)
    raise ValueError(f"a domain is positive, nonnegative, unit, finite, (low, high) or fixed, not {limit!r}")


def scale_inputs(inputs: Sequence[Any], factor: float) -> list[Any]:
    """The inputs with all floating values factor times as large, as far as their dtype reaches."""

    def scale(value: torch.Tensor) -> torch.Tensor:
        bound = torch.finfo(value.dtype).max
        return (value.double() * factor).clamp(-bound, bound).to(value.dtype)

    return [scale(x) if is_data(x) else x for x in inputs]


def move_inputs(inputs: Sequence[Any], seed: int, shrink: float) -> list[Any]:
    """Inputs that are as good a sample of the same errors: half of the values one rounding nearer to 0, all smaller.

    Values are smaller by one factor for all tensors, at most by the share `shrink`. Without it a sum that is rounded
    to 16 bits on the way would be rounded the same way in each sample, and its error look like none.
    """
    moved = list(inputs)
    factor = 1.0 - shrink * float(torch.rand((), generator=torch.Generator().manual_seed(seed * 113 + 5)))
    for position, value in enumerate(inputs):
        if is_data(value) and value.dtype.itemsize > 1:  # torch does no arithmetic with floats of 8 bits
            generator = torch.Generator(device=value.device).manual_seed(seed * 109 + position)

            def move(part: torch.Tensor, generator: torch.Generator = generator) -> None:
                steps = draw_bytes(part.numel(), part.device, generator).bitwise_and_(1).view(part.shape)
                codes = as_bits(part)
                codes.sub_(steps.mul_(part != 0).to(codes.dtype))  # the next float nearer to 0 has the next code
                part.mul_(factor)

            moved[position] = change_in_pieces(copy_tensor(value), move)
    return moved
