"""Tensors in pieces: the judge makes a dozen float64 values of each element, too much for a billion of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, reduce
from typing import Any

import torch

PIECE, PIECE_ON_CPU = 2**25, 2**17
"""Elements of a piece; on a CPU so many, with what is made of them, stay in the cache."""
LARGE = 2**28
"""Elements from which an output's limits are made piece by piece, each time that they are needed."""
LOOKED_UP = 2**17
"""Up to so many factors are looked up: fewer calls. A GPU takes 17 ms to look up 2**26 of them (an H100)."""


def copy_tensor(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A copy in the same strides: torch's own closes the gaps of a view, and a kernel would run on another layout."""
    return empty_in_layout(tensor, dtype).copy_(tensor)


def empty_in_layout(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A new tensor of the shape and strides of this one; dense where elements of this one are the same memory."""
    if torch._debug_has_internal_overlap(tensor) == 1:
        return torch.empty(tensor.shape, dtype=dtype or tensor.dtype, device=tensor.device)
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype or tensor.dtype, device=tensor.device)


def is_dense_float(value: Any) -> bool:
    """Whether a value is a tensor of floats in strides: sparse ones are not moved."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.layout is torch.strided


def untangle(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy where elements of it are the same memory."""
    return tensor.clone() if torch._debug_has_internal_overlap(tensor) == 1 else tensor


def encode(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The values; if dtype is a float of 8 bits, their codes in it, one for both zeros and one for NaN.

    torch stores and converts such floats, and computes with none. What is quantised is right or not, as integers are.
    """
    if not dtype.is_floating_point or dtype.itemsize > 1:
        return values
    numbers = values.to(dtype).float()
    return torch.where(numbers.isnan(), torch.nan, numbers + 0.0).to(dtype).view(torch.uint8)


def has_no_number(codes: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether some of what `encode` made of 8-bit floats is NaN or infinite."""
    coded = codes.dtype is torch.uint8 and dtype.is_floating_point
    return coded and not bool(codes.view(dtype).float().isfinite().all())


def holds_flags(values: torch.Tensor) -> bool:
    """Whether all values are 0 or 1, and both occur."""
    ends = tuple(map(float, values.aminmax()))
    return ends == (0.0, 1.0) and bool(((values == 0) | (values == 1)).all())


def is_outside(got: torch.Tensor, ends: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """Where a number is smaller or larger than all of these; codes of 8-bit floats are ordered as numbers are.

    Nothing lies between a NaN and a number.
    """

    def order(codes: torch.Tensor) -> torch.Tensor:
        number = codes.long()
        return torch.where(number < 128, number, 128 - number) if dtype.is_floating_point else number

    def leave_out_nan(codes: torch.Tensor, instead: int) -> torch.Tensor:
        return order(codes).masked_fill(codes.view(dtype).isnan(), instead) if dtype.is_floating_point else order(codes)

    low = reduce(torch.minimum, (leave_out_nan(end, 256) for end in ends))
    high = reduce(torch.maximum, (leave_out_nan(end, -256) for end in ends))
    return (order(got) < low) | (order(got) > high)


def split_flat(*tensors: torch.Tensor, piece: int = 0) -> Iterator[tuple[torch.Tensor, ...]]:
    """Pieces of tensors of one shape, flat, or small tensors themselves; those of a contiguous tensor are views."""
    piece = piece or PIECE
    if tensors[0].numel() <= piece:
        yield tensors
        return
    flats = [t.reshape(-1) for t in tensors]
    for start in range(0, flats[0].numel(), piece):
        yield tuple(flat[start : start + piece] for flat in flats)


def change_in_pieces(tensor: torch.Tensor, change: Callable[[torch.Tensor], object]) -> torch.Tensor:
    """The tensor after a change of its elements in place, each piece by itself."""
    size = PIECE_ON_CPU if tensor.device.type == "cpu" else PIECE
    for (piece,) in split_flat(tensor, piece=size) if tensor.is_contiguous() else [(tensor,)]:
        change(piece)
    return tensor


def statistics_like(values: torch.Tensor) -> torch.Tensor:
    """Zeros for a non-negative statistic of each element: float64, or float32 where there are very many."""
    dtype = torch.float32 if values.numel() > LARGE else torch.float64
    return torch.zeros(values.shape, dtype=dtype, device=values.device)


def draw_bytes(count: int, device: torch.device, generator: torch.Generator) -> torch.Tensor:
    """Random bytes, drawn eight at a time: a random number for each bit would cost more than all that it is for."""
    words = torch.empty(-(-count // 8), dtype=torch.int64, device=device)
    return words.random_(-(2**63), None, generator=generator).view(torch.uint8)[:count]


def draw_factors(values: torch.Tensor, eps: float, generator: torch.Generator) -> torch.Tensor:
    """1 + or - 0.6 to 1.3 times eps for each value, in its dtype: a random byte gives two.

    Of one size alone, two values that are subtracted from each other would move alike in all of six draws, once in 64,
    and their difference would seem to have no error: that of a softmax's argument from its row's maximum, for example.
    """
    numbers = draw_bytes(-(-values.numel() // 2), values.device, generator)
    if values.numel() > LOOKED_UP:
        factors = _compute_factors(numbers, eps, values.dtype)
    else:
        factors = torch.embedding(_list_factors(eps, values.dtype, values.device), numbers.int())
    return factors.reshape(-1)[: values.numel()].reshape(values.shape)


@cache
def _list_factors(eps: float, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """(256, 2): the factors of each byte."""
    return _compute_factors(torch.arange(256, dtype=torch.uint8, device=device), eps, dtype)


def _compute_factors(numbers: torch.Tensor, eps: float, dtype: torch.dtype) -> torch.Tensor:
    """The factor of each half of each byte: its first bit is the sign, the others the size."""
    halves = torch.stack((numbers & 15, numbers >> 4), -1).view(torch.int8)
    tenths = halves.add_((halves >> 3).mul_(11)).sub_(13)  # 13 to 6 below 0, then 6 to 13 above
    return tenths.to(dtype).mul_(0.1 * eps).add_(1.0)


def lay_out(value: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """The values in the input's dtype and strides, at most its largest number divided by 1.05."""
    bound = torch.finfo(value.dtype).max / 1.05
    within, infinite = values.clamp(-bound, bound), values.isinf()
    return empty_in_layout(value).copy_(torch.where(infinite, values, within) if bool(infinite.any()) else within)
