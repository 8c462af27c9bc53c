"""Loads, stores and atomic operations of all programs of a chunk at once.

What is evenly spaced is read and written as a strided view; everything else lane by lane, as indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelsearch.evaluate.arithmetic import BITS, SMALL_FLOATS, dtype_of, where
from kernelsearch.evaluate.buffers import Storage, Storages
from kernelsearch.evaluate.faults import Unsupported
from kernelsearch.evaluate.sums import LazySum, Pair, add, add_up, find_steps, find_stride, take_here, take_there
from kernelsearch.ir.text import Operation, Type

Tensor = torch.Tensor
FEW = 1 << 13
"""Lanes that are read and written faster by their indices than as a view, which takes looking."""
WARP = 32
"""Lanes of a warp."""
MOST_MASK = 1 << 16
"""Lanes of a mask, the same for all programs, that is looked at for a box."""


@dataclass
class TileDescriptor:
    """A tensor descriptor: where it begins, its sizes and strides in elements, and whether NaN lies outside."""

    pointer: Tensor
    sizes: list[Tensor]
    strides: list[Tensor]
    nan_outside: bool = False


@dataclass(frozen=True)
class StridedView:
    """An access as a strided view of a buffer, in elements; box is the part of all lanes that it covers (None: all)."""

    buffer: Storage
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    begin: int
    box: tuple[slice, ...] | None

    def of(self, flat: Tensor) -> Tensor:
        return flat.as_strided(self.sizes, self.strides, self.begin)

    @property
    def is_disjoint(self) -> bool:
        """Whether no two lanes meet in one element."""
        reach = 0
        for stride, size in sorted(zip(self.strides, self.sizes, strict=True)):
            if size > 1 and stride <= reach:
                return False
            reach += stride * (size - 1)
        return True


def choose(condition: Tensor, a: Any, b: Any) -> Any:
    """What of two values each program has; of descriptors too."""
    if Pair in (type(a), type(b)):
        return Pair(*(choose(condition, of(a), of(b)) for of in (take_here, take_there)))
    if not isinstance(a, TileDescriptor):
        return where(condition, add_up(a), add_up(b))
    if a.nan_outside != b.nan_outside:
        raise Unsupported("a choice between descriptors that fill in other values")
    sizes, strides = (
        [torch.where(condition, add_up(one), add_up(other)) for one, other in zip(*both, strict=True)]
        for both in ((a.sizes, b.sizes), (a.strides, b.strides))
    )
    return TileDescriptor(torch.where(condition, a.pointer, b.pointer), sizes, strides, a.nan_outside)


class Memory:
    """Accesses to the buffers of a launch; undefined: lanes that are off without `other` hold odd values, not 0."""

    def __init__(self, buffers: Storages, undefined: bool = False) -> None:
        self.buffers, self.undefined = buffers, undefined
        self.count, self.forms = 1, dict[tuple[int, ...], int]()

    def _fill(self, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
        """What lanes that are off hold: zeros, or values that hardly leave any result as it was, by turns."""
        if not self.undefined or dtype == torch.bool:
            return torch.zeros((), dtype=dtype)
        odd = [math.nan, torch.finfo(dtype).max] if dtype.is_floating_point else [-1, 0x55]
        made = (
            torch.tensor(odd, dtype=torch.float64).to(dtype) if dtype.is_floating_point else torch.tensor(odd).to(dtype)
        )
        return made.repeat(-(-shape[-1] // 2))[: shape[-1]].reshape(*(1,) * len(shape), -1) if shape else made[0]

    def mask_lanes(self, mask: Tensor | None, act: Tensor | None, rank: int) -> Tensor | None:
        """The mask with the programs that are off taken out."""
        if act is None:
            return mask
        act = act.reshape(-1, *(1,) * rank)
        return act if mask is None else mask & act

    # ------------------------------------------------------------ views

    def _view(
        self, addresses: Tensor | LazySum, mask: Tensor | None, shape: tuple[int, ...], width: int, all_: bool
    ) -> StridedView | None:
        """The access as a view of one buffer, None where it is none; with all_ each program has its own lanes."""
        parts = addresses.parts if type(addresses) is LazySum else [addresses]
        full = (self.count if all_ else max(part.shape[0] for part in parts), *shape)
        if math.prod(full) < FEW:
            return None
        found = find_steps(addresses, full)
        if found is None:
            return None
        (start, along), box = found, None
        if mask is not None and mask.shape[0] == 1 and mask.numel() <= MOST_MASK:
            if (ends := _find_box(mask, full)) is None:
                return None
            if any(e.stop - e.start < n for e, n in zip(ends, shape, strict=True)):
                box = (slice(None), *ends)
                start += sum(int(line[e.start]) for line, e in zip(along[1:], ends, strict=True))
                along = [along[0], *(line[e] - line[e.start] for line, e in zip(along[1:], ends, strict=True))]
        steps = [find_stride(line) for line in along]
        if any(step is None or step < 0 or step % width for step in steps):
            return None
        number = self.buffers.find(start)
        if number is None or (start - self.buffers.address_of(number)) % width:
            return None
        buffer = self.buffers.buffers[number]
        sizes, strides = tuple(map(len, along)), tuple((step or 0) // width for step in steps)
        begin = (start - self.buffers.address_of(number)) // width
        last = begin + sum(s * (n - 1) for s, n in zip(strides, sizes, strict=True))
        if begin < 0 or last >= len(buffer.tensor) // width:
            return None
        return StridedView(buffer, sizes, strides, begin, box)

    # ------------------------------------------------------------ loads

    def load(
        self,
        op: Operation,
        addresses: Tensor | LazySum,
        mask: Tensor | None,
        other: Tensor | None,
        act: Tensor | None,
        kind: Type,
    ) -> Tensor:
        """The values at these addresses of pointers of a type, `other` where the mask is off."""
        dtype = dtype_of(kind.element.removeprefix("*"))
        width = torch.empty((), dtype=dtype).element_size()
        mask = self.mask_lanes(mask, act, len(kind.shape))
        other = self._fill(dtype, kind.shape) if other is None else other
        simple = act is None and dtype != torch.bool and dtype not in SMALL_FLOATS
        seen = self._view(addresses, mask, kind.shape, width, False) if simple else None
        if seen is not None and not seen.buffer.stored and not _holds_poison(seen, width):
            return _read_view(seen, mask, other.to(dtype), kind.shape)
        other = other if other.dim() else other.reshape((1,) * (1 + len(kind.shape)))
        made: Tensor | None = None
        if mask is None or bool(mask.any()):
            for buffer, index, on in self.buffers.locate(op, "load", add_up(addresses), mask, width):
                loaded = self._read(op, buffer, index, on, dtype, width, kind.shape)
                made = loaded if on is None else where(on, loaded, other if made is None else made)
        return other if made is None else made

    def _read(
        self,
        op: Operation,
        buffer: Storage,
        index: Tensor,
        mask: Tensor | None,
        dtype: torch.dtype,
        width: int,
        shape: tuple[int, ...],
    ) -> Tensor:
        loaded = buffer.view(BITS[width]).index_select(0, index.reshape(-1)).reshape(index.shape)
        if buffer.stored or buffer.poison is not None:
            flat, programs, *warps = self._spread(index, mask, shape, *self._find_warps(shape))
            self.buffers.see_load(op, buffer, flat, programs, width, *warps)
        return loaded.to(torch.bool) if dtype == torch.bool else loaded.view(dtype)

    def _find_warps(self, shape: tuple[int, ...]) -> list[Tensor]:
        """For each lane of a tile a number that it has in common with the lanes of one warp, where that matters.

        A layout follows the shape, mostly, and 32 neighbours are of one warp in all of them.
        """
        if self.buffers.phase is None:
            return []
        form = self.forms.setdefault(shape, len(self.forms) << 16)
        return [(torch.arange(math.prod(shape), dtype=torch.int32) // WARP + form).reshape(1, *shape)]

    def _spread(self, index: Tensor, mask: Tensor | None, shape: tuple[int, ...], *more: Tensor) -> list[Tensor]:
        """Flat indices, programs and further values of the active lanes of all programs."""
        full = (self.count, *shape)
        programs = self.buffers.programs.reshape(-1, *(1,) * len(shape))
        every = [v.expand(full) for v in (index, programs, *more)]
        if mask is None or bool(mask.all()):
            return [v.reshape(-1) for v in every]
        if mask.shape[0] == 1:  # the same lanes of every program
            kept = mask.expand(1, *shape).reshape(-1).nonzero().reshape(-1)
            return [v.reshape(self.count, -1).index_select(1, kept).reshape(-1) for v in every]
        mask = mask.expand(full)
        return [v[mask] for v in every]

    # ------------------------------------------------------------ stores

    def store(
        self,
        op: Operation,
        addresses: Tensor | LazySum,
        value: Tensor,
        mask: Tensor | None,
        act: Tensor | None,
        shape: tuple[int, ...],
    ) -> None:
        """Stores values at these addresses where the mask is on. Raises OutOfBounds, Race."""
        width = max(1, value.element_size())
        mask = self.mask_lanes(mask, act, len(shape))
        if mask is not None and not bool(mask.any()):
            return
        bits = value.view(torch.int8) if value.dtype == torch.bool else value.contiguous().view(BITS[width])
        simple = act is None and not self.buffers.watchers and self.buffers.phase is None
        seen = self._view(addresses, mask, shape, width, True) if simple else None
        if seen is not None and seen.is_disjoint and self._store_view(seen, bits, mask, width, shape):
            return
        for buffer, index, on in self.buffers.locate(op, "store", add_up(addresses), mask, width):
            index, programs, stored, *warps = self._spread(index, on, shape, bits, *self._find_warps(shape))
            self.buffers.store(op, buffer, index, programs, stored, width, *warps)

    def _store_view(
        self, seen: StridedView, bits: Tensor, mask: Tensor | None, width: int, shape: tuple[int, ...]
    ) -> bool:
        """Stores where nothing was stored, loaded or updated before; False if that is not so."""
        buffer = seen.buffer
        if not buffer.stored or buffer.is_input or buffer.width not in (0, width):
            return False
        stored = buffer.log("stored", width)
        if any(bool(seen.of(log).any()) for log in buffer.logs.values()):
            return False
        if seen.box is not None and mask is not None:
            bits = bits.expand(bits.shape[0], *shape)[seen.box]
            mask = mask.expand(mask.shape[0], *shape)[seen.box]
        target, programs = seen.of(buffer.view(BITS[width])), self.buffers.programs.reshape(-1, *(1,) * len(shape))
        mask = None if mask is None or bool(mask.all()) else mask
        target.copy_(bits if mask is None else torch.where(mask, bits, target))
        seen.of(stored).copy_(programs if mask is None else torch.where(mask, programs, 0))
        return True

    # ------------------------------------------------------------ atomic operations

    def update(
        self,
        op: Operation,
        addresses: Tensor,
        mask: Tensor | None,
        act: Tensor | None,
        values: Sequence[Tensor],
        pick: Callable[..., Tensor] | None,
        shape: tuple[int, ...],
    ) -> Tensor:
        """Updates lane by lane in the order of programs; gives what was there. pick None adds, and gives nothing."""
        mask, dtype = self.mask_lanes(mask, act, len(shape)), values[0].dtype
        width = values[0].element_size()
        old = torch.zeros((self.count, *shape), dtype=dtype)
        if mask is not None and not bool(mask.any()):
            return old
        out, every = old.reshape(-1), torch.arange(old.numel()).reshape(old.shape)
        for buffer, index, on in self.buffers.locate(op, "atomic", addresses, mask, width):
            index, programs, lanes, *given = self._spread(index, on, shape, every, *values)
            self.buffers.see_update(op, buffer, index, programs, width)
            flat = buffer.view(dtype)
            if pick is None:
                flat.index_add_(0, index, given[0])
                self.buffers.changes += 1
                continue
            for at, lane, *now in zip(index.tolist(), lanes.tolist(), *given, strict=True):
                out[lane] = flat[at]
                flat[at] = pick(flat[at].clone(), *now)
                self.buffers.changes += not torch.equal(out[lane], flat[at])
        return old


ATOMICS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add, "fadd": torch.add, "max": torch.maximum, "min": torch.minimum, "exch": lambda a, b: b,
    "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
    "umax": lambda a, b: max(a, b, key=_as_unsigned), "umin": lambda a, b: min(a, b, key=_as_unsigned),
}  # fmt: skip


def _as_unsigned(value: Tensor) -> int:
    """The bits of an integer as a number that is not negative."""
    return int(value) % (1 << 8 * value.element_size())


def find_tile(described: TileDescriptor, at: Sequence[Tensor], kind: Type) -> tuple[Tensor | LazySum, Tensor | None]:
    """A descriptor's tile as addresses and a mask: what lies outside of the tensor is neither read nor written.

    Its place is a number for each axis; of a gather's first axis a row for each of the tile.
    """
    rank, width = len(kind.shape), torch.empty((), dtype=dtype_of(kind.element)).element_size()
    if rank != len(described.sizes):
        raise Unsupported("a descriptor's tile of lower rank")
    addresses: Tensor | LazySum = described.pointer.reshape(-1, *(1,) * rank)
    mask = None
    for axis, (first, size, stride) in enumerate(zip(at, described.sizes, described.strides, strict=True)):
        first, (size, stride) = add_up(first).to(torch.int64), (v.to(torch.int64) for v in (size, stride))
        size, stride = size.reshape(-1, *(1,) * rank), stride.reshape(-1, *(1,) * rank)
        line = first[..., None] if first.dim() > 1 else first[:, None] + torch.arange(kind.shape[axis])
        line = line.reshape(first.shape[0], *(-1 if i == axis else 1 for i in range(rank)))
        on = (line >= 0) & (line < size)
        mask = on if mask is None else mask & on
        addresses = add(addresses, line * stride * width, torch.int64)
    return addresses, None if mask is None or bool(mask.all()) else mask


def _find_box(mask: Tensor, full: tuple[int, ...]) -> list[slice] | None:
    """The least box of lanes that holds all of a mask, None where none is on."""
    ends = []
    for axis in range(1, mask.dim()):
        others = [i for i in range(mask.dim()) if i != axis]
        kept = (mask.any(dim=others) if others else mask).nonzero().reshape(-1)
        if not len(kept):
            return None
        ends.append(slice(int(kept[0]), int(kept[-1]) + 1) if mask.shape[axis] > 1 else slice(0, full[axis]))
    return ends


def _holds_poison(seen: StridedView, width: int) -> bool:
    """Whether any lane, on or off, lies where nothing has written."""
    poison = seen.buffer.poison
    return poison is not None and bool((seen.of(seen.buffer.view(BITS[width])) == poison).any())


def _read_view(seen: StridedView, mask: Tensor | None, other: Tensor, shape: tuple[int, ...]) -> Tensor:
    view = seen.of(seen.buffer.view(other.dtype))
    if mask is None or (seen.box is None and bool(mask.all())):
        return view
    if seen.box is None:
        return torch.where(mask, view, other)
    other = other if other.dim() else other.reshape((1,) * (1 + len(shape)))
    made = other.expand(seen.sizes[0], *shape).clone()
    inner = mask[tuple(slice(None) if m == 1 else b for m, b in zip(mask.shape, seen.box, strict=True))]
    made[seen.box] = view if bool(inner.all()) else torch.where(inner, view, made[seen.box])
    return made
