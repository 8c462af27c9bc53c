"""Where a reference makes integers of floats: what it rounds, and among which values it picks one by its index.

An integer that comes from rounding may be a neighbour where the value before lies within its own tolerance of the
boundary; an index is right where the value that it points at is. Of equal values it must be the first where torch
promises that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from kernelsearch.verify.dispatch import DispatchMode, list_tensors
from kernelsearch.verify.error_samples import RoundingMode, try_sample
from kernelsearch.verify.tolerance import COPIES, EagerErrors, ErrorLimits

ROUNDINGS = frozenset(("round", "floor", "ceil", "trunc", "special_round"))
WHOLE = ROUNDINGS | frozenset("clamp clamp_min clamp_max minimum maximum add sub neg where cat stack _to_copy".split())
"""Operations that make whole numbers, from whole numbers at least."""
PICKS = {"topk": 1, "sort": 1, "max": 1, "min": 1, "median": 1, "kthvalue": 1, "argmax": 0, "argmin": 0}
"""Operations that give indices, and the place of these among their results."""
FIRST = frozenset(("argmax", "argmin", "max", "min"))
"""Those of which torch's documentation promises the first index of equal values."""

ULPS, DRAWN = 4, 24
"""The size in eps of the roundings that may move a whole number to its neighbour, and how many are drawn."""

UNSURE = 8
"""Different right answers from which an integer is decided by roundings: the nearest of 70 codes all of which are far
away has 17 to 22 in 26 draws, and few had been drawn yet of what an honest kernel may say; elsewhere there are 1 to 4.
"""

CHUNK = 2**20
"""Elements whose right answers are sorted at once."""


def is_coded(dtype: Any) -> bool:
    """True for dtypes whose values are right or wrong: integers and floats of 8 bits."""
    return isinstance(dtype, torch.dtype) and dtype is not torch.bool and (dtype.itemsize == 1 or not _is_float(dtype))


def _is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


@dataclass(frozen=True)
class Picked:
    """Indices along one axis of a site's values (None: flat): rows has, for each, which of the others it has the place
    in; -1 for what is no index. values and limits, of the errors in them, are rows of that axis. first says that of
    equal values, if no rounding led to them, the first is right.
    """

    site: int
    dim: int | None
    rows: torch.Tensor
    values: torch.Tensor | None = None
    limits: torch.Tensor | None = None
    first: bool = False

    def settle(self, values: torch.Tensor, limits: torch.Tensor) -> Picked:
        """The same with the site's values and their limits."""
        values, limits = (v.reshape(1, -1) if self.dim is None else v.movedim(self.dim, -1) for v in (values, limits))
        values, limits = values.reshape(-1, values.shape[-1]), limits.reshape(-1, values.shape[-1])
        return replace(self, values=values, limits=limits, first=self.first and not bool(limits.any()))

    def points_alike(self, got: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Where an index points at what the right one points at, within the limits of both values."""
        if self.first:
            return torch.zeros_like(got, dtype=torch.bool)
        assert self.values is not None and self.limits is not None
        size = self.values.shape[-1]
        values, limits = self.values.reshape(-1), self.limits.reshape(-1)
        mine, theirs = (self.rows.clamp_min(0) * size + v.long().clamp(0, size - 1) for v in (got, right))
        near = (values[mine] - values[theirs]).abs() <= limits[mine] + limits[theirs]
        return (near | (values[mine] == values[theirs])) & (self.rows >= 0) & (got >= 0) & (got < size)

    def repeats(self, got: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Where an index is one that its row has already, and the right one is not."""
        assert self.values is not None
        keys, firsts = ((self.rows * self.values.shape[-1] + v.long()).reshape(-1) for v in (got, right))
        order = keys.argsort(stable=True)
        again = (keys[order].diff() == 0) & (firsts[order].diff() != 0) & (self.rows.reshape(-1)[order][1:] >= 0)
        found = torch.zeros_like(keys, dtype=torch.bool)
        found[order[1:]] = again
        return found.reshape(got.shape)


class SitesMode(DispatchMode):
    """While it is active, it keeps the values before each rounding and each pick; with shifts it adds these to them.

    With saturate, casts to 8-bit floats give the largest number for what lies beyond it, as Triton's do and those of
    torch.compile; eager gives NaN, or infinity where the format has one.
    """

    def __init__(self, shifts: Sequence[torch.Tensor] = (), saturate: bool = False) -> None:
        super().__init__()
        self.shifts, self.values, self.saturate = shifts, list[torch.Tensor](), saturate
        self._rounded: dict[int, torch.Tensor] = {}
        self._picked: dict[int, tuple[torch.Tensor, Picked]] = {}

    def find_picked(self, output: torch.Tensor) -> Picked | None:
        """The rows of an output that consists of indices; its values and limits are for the caller to set."""
        return self._picked.get(id(output), (output, None))[1]

    def has_rounded(self, output: torch.Tensor) -> bool:
        """Whether an output is what a rounding gave, so that whatever lies between two right values is right."""
        return self._rounded.get(id(output)) is output

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::")
        name = name if name == "_to_copy" else name.rstrip("_")
        given = list_tensors(args)
        known = [id(v) in self._rounded for v in given if v.is_floating_point()]
        whole = bool(known) and all(known)
        place = 1 if name == "copy" else 0
        dtype = args[0].dtype if name == "copy" else kwargs.get("dtype")
        site = (name in ROUNDINGS or (name in ("_to_copy", "copy") and is_coded(dtype))) and not whole
        picks = name in PICKS and len(given) == 1 and given[0].dim() > 0 and not kwargs.get("stable")
        site = site and args[place].is_floating_point()
        if picks or site:
            args = (*args[:place], self._meet(args[place], func._schema.is_mutable and not place), *args[place + 1 :])
        if site and self.saturate and dtype is not None and _is_float(dtype):
            most = torch.finfo(dtype).max
            args = (*args[:place], args[place].double().clamp(-most, most), *args[place + 1 :])
        result = func(*args, **kwargs)
        viewed = func.is_view and id(args[0]) in self._rounded
        if site or viewed or name in ROUNDINGS or (whole and name in WHOLE):
            self._rounded |= {id(v): v for v in list_tensors(result)}
        if (picks and not isinstance(result, torch.Tensor)) or name in ("argmax", "argmin"):
            self._mark_picks(func, name, args, kwargs, result)
        elif any(id(v) in self._picked for v in given):
            self._follow_picks(func, name, args, kwargs, result)
        return result

    def _meet(self, value: torch.Tensor, in_place: bool) -> torch.Tensor:
        """Keeps a copy of the value before it is used, and returns the value with its shift."""
        number, wide = len(self.values), value.dtype.is_floating_point and value.dtype.itemsize > 1
        self.values.append(value.clone() if wide else value.double())
        if not wide or number >= len(self.shifts) or not bool(self.shifts[number].any()):
            return value
        shift = self.shifts[number].reshape(value.shape).to(value.dtype)
        return value.add_(shift) if in_place else value + shift

    def _mark_picks(self, func: Any, name: str, args: tuple, kwargs: dict, result: Any) -> None:
        named = {a.name: a.default_value for a in func._schema.arguments}
        named |= {**dict(zip(named, args)), **kwargs}
        index = list_tensors(result)[PICKS[name]]
        shape, dim = list(named["self"].shape), named.get("dim")
        if dim is None:
            rows = torch.zeros_like(index)
        else:
            size = shape.pop(dim)
            rows = torch.arange(named["self"].numel() // max(1, size), device=index.device).reshape(shape)
            rows = rows.unsqueeze(dim % (len(shape) + 1)) if index.dim() > len(shape) else rows
        rows = rows.expand(index.shape).contiguous()
        self._picked[id(index)] = index, Picked(len(self.values) - 1, dim, rows, first=name in FIRST)

    def _follow_picks(self, func: Any, name: str, args: tuple, kwargs: dict, result: Any) -> None:
        """Marks what an operation makes of indices, if it moves them and changes none."""
        sites = {self._picked[id(v)][1].site for v in list_tensors(args) if id(v) in self._picked}
        if len(sites) > 1 or not (func.is_view or name in COPIES or name in ("masked_fill", "copy")):
            return

        def rows_of(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [rows_of(v) for v in value]
            if isinstance(value, torch.Tensor) and id(value) in self._picked:
                return self._picked[id(value)][1].rows
            return torch.full_like(value, -1, dtype=torch.int64) if isinstance(value, torch.Tensor) else value

        if name in ("_to_copy", "copy", "clone"):
            source = args[1] if name == "copy" else args[0]
            rows = rows_of(source).expand(result.shape)
        elif name == "masked_fill":
            rows = rows_of(args[0]).masked_fill(args[1], -1)
        else:
            kept = (args[0], *map(rows_of, args[1:])) if name == "where" else (rows_of(args[0]), *args[1:])
            rows = func(*kept, **kwargs)
        first = next(self._picked[id(v)][1] for v in list_tensors(args) if id(v) in self._picked)
        for made, each in zip(list_tensors(result), list_tensors(rows)):
            self._picked[id(made)] = made, replace(first, rows=each)


def find_shift(
    y: torch.Tensor, eager: torch.Tensor, errors: EagerErrors, limits: ErrorLimits | None, picks: bool
) -> torch.Tensor:
    """The largest errors of a site's values; none in those among which one is picked if eager never errs in them, as in
    an input's: whoever compares two of them finds the same.
    """
    if limits is None or (picks and torch.equal(y, eager.double()) and not bool(errors.largest.any())):
        return torch.zeros_like(y)
    return torch.nan_to_num(limits.element, posinf=0.0)


def draw_roundings(
    evaluate: Callable[..., list[torch.Tensor]],
    make_inputs: Callable[[], list[Any]],
    expected: Sequence[torch.Tensor],
    shifts: Sequence[torch.Tensor] = (),
    *,
    eps: float,
    seed: int,
) -> list[tuple[torch.Tensor, ...]]:
    """Other right answers of each integer output: those to which a few roundings by eps on the way lead.

    A quotient that is exactly -127 in float64 becomes -126 where a kernel's division errs by an ulp and then cuts off.
    shifts are the largest errors of what the reference rounds: it is moved by these to either side, then by parts.
    """
    others: list[tuple[torch.Tensor, ...]] = [() for _ in expected]
    for draw in range(DRAWN):
        moves = [_draw_shift(shift, draw, seed * 31 + number) for number, shift in enumerate(shifts)]
        with RoundingMode(ULPS * eps, seed * 31 + draw):
            answers = try_sample(partial(evaluate, make_inputs(), moves))
        for number, (y, other) in enumerate(zip(expected, answers)):
            if not y.is_floating_point() and other.shape == y.shape and not torch.equal(y, other):
                others[number] += (other,)
    return others


def _draw_shift(shift: torch.Tensor, draw: int, seed: int) -> torch.Tensor:
    """The shift to one side, to the other, then for each element to a side of its own, at last by a part of it."""
    if draw < 2:
        return shift if draw else -shift
    generator = torch.Generator(device=shift.device).manual_seed(seed * 1009 + draw)
    part = torch.rand(shift.shape, generator=generator, device=shift.device, dtype=shift.dtype).mul_(2.0).sub_(1.0)
    return shift * (part.sign() if draw < DRAWN // 2 else part)


def find_sure(answer: torch.Tensor, others: Sequence[torch.Tensor]) -> torch.Tensor:
    """Where an integer has fewer than UNSURE different right answers."""
    sure = torch.ones(answer.shape, dtype=torch.bool, device=answer.device).reshape(-1)
    values = [v.reshape(-1) for v in (answer, *others)]
    for start in range(0, sure.numel(), CHUNK):
        ranked = torch.stack([v[start : start + CHUNK].long() for v in values]).sort(0).values
        sure[start : start + CHUNK] = (ranked[1:] != ranked[:-1]).sum(0) + 1 < UNSURE
    return sure.reshape(answer.shape)
