"""The buffers of a launch, and who touched which element: out-of-bounds accesses and races as facts, not samples.

Pointers are int64 addresses of an imagined memory, in which each buffer lies in the middle of 256 GiB of its own:
every lane outside of a buffer is seen, whatever its offset. On a GPU the programs of a launch run in no order, so a
launch races when
- two programs, or two lanes of one store, store different values to one element (the same value is harmless),
- one program loads, or updates atomically, what another has stored, in either order,
- one program stores or loads what another has updated atomically.
A program that has used what an atomic operation or a volatile load gave it is not accused: it may hold a lock or be the
last to arrive at a counter, which only these can tell it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import torch

from kernelsearch.evaluate.arithmetic import BITS
from kernelsearch.evaluate.faults import Fault, OutOfBounds, Race, Unsupported
from kernelsearch.ir.text import Operation

Tensor = torch.Tensor
WINDOW = 38
"""log2 of the bytes between two buffers."""
LAST = (1 << 47 - WINDOW) - 1
"""The window of the first buffer, below which the others lie: where a GPU's memory is."""
SEVERAL = -1
"""In the log of loads: more than one program."""


@dataclass
class Storage:
    """A storage as bytes, and by element the program that wrote, loaded or updated it, + 1; 0 for none.

    stored: the kernel may store here, so accesses are logged. poison holds the bits of memory that nothing has written
    since it was allocated, None where that is not known; is_input: the launch must not write it.
    """

    name: str
    tensor: Tensor
    poison: int | None = None
    is_input: bool = False
    stored: bool = False
    width: int = 0
    logs: dict[str, Tensor] = field(default_factory=dict)

    def view(self, dtype: torch.dtype) -> Tensor:
        """All whole elements of a dtype."""
        width = torch.empty((), dtype=dtype).element_size()
        return self.tensor[: len(self.tensor) // width * width].view(dtype)

    def log(self, name: str, width: int) -> Tensor:
        """The log of this name; from now on all logs tell elements of at most so many bytes apart."""
        if self.width > width:
            self.logs = {n: log.repeat_interleave(self.width // width) for n, log in self.logs.items()}
        self.width = min(self.width or width, width)
        if name not in self.logs:
            self.logs[name] = torch.zeros(max(1, len(self.tensor) // self.width), dtype=torch.int32)
        return self.logs[name]

    def split(self, width: int, index: Tensor, *more: Tensor) -> list[Tensor]:
        """Elements of so many bytes, and values by element, as those that the logs tell apart."""
        parts = width // self.width
        if parts == 1:
            return [index, *more]
        fine = (index[:, None] * parts + torch.arange(parts)).reshape(-1)
        return [fine, *(v.repeat_interleave(parts) for v in more)]


class Storages:
    """All buffers of a launch, with what is seen of their accesses.

    suspect says the first thing that is wrong only if all else is right: a load of what nothing has written, or a
    store to an input, or of what other warps have just stored. grid and the programs of the present chunk are set by
    who runs them; phase counts the points at which the warps of a program have waited for one another, None where a
    kernel loads nothing that it stores.
    """

    def __init__(self, buffers: list[Storage]) -> None:
        self.buffers, self.suspect = buffers, ""
        self.grid: tuple[int, int, int] = (1, 1, 1)
        self.programs = torch.zeros(1, dtype=torch.int32)  # + 1
        self.ordered = torch.zeros(2, dtype=torch.bool)
        self.watchers, self.changes, self.casts = 0, 0, False
        self.phase: int | None = None
        self.offset = random.randrange(1 << 21) * 512  # no kernel knows where it is judged

    def address_of(self, number: int) -> int:
        """Where a buffer begins."""
        return ((LAST - number) << WINDOW) + (1 << (WINDOW - 1)) + self.offset

    def find(self, address: int) -> int | None:
        """The number of the buffer in whose window an address lies."""
        number = LAST - (address >> WINDOW)
        return number if 0 <= number < len(self.buffers) else None

    def find_low(self, addresses: Tensor) -> Tensor:
        """What these addresses would be if the buffers lay one behind the other, below all addresses of a GPU.

        The first differs in every bit above its alignment from where it lies.
        """
        ends = torch.tensor(
            [self.address_of(0) ^ ((1 << 47) - 512), *(-(-len(b.tensor) // 512) * 512 for b in self.buffers)]
        ).cumsum(0)
        number = (LAST - (addresses >> WINDOW)).clamp(0, len(self.buffers) - 1)
        begin = ((LAST - number) << WINDOW) + self.address_of(LAST)
        return addresses - begin + ends[number]

    def note_place(self, op: Operation) -> None:
        """Notes that an operation decides by where buffers lie."""
        self.suspect = self.suspect or (
            f"decides by where its buffers lie in memory, beyond their alignment to 512 bytes, in line {op.line}"
        )

    def translate(self, addresses: Tensor) -> Tensor:
        """Addresses of this process, as tables of a launcher hold them, as those of the same buffers here."""
        made = addresses
        for number, buffer in enumerate(self.buffers):
            start = buffer.tensor.data_ptr()
            here = (addresses >= start) & (addresses < start + len(buffer.tensor))
            if bool(here.any()) and not any(map(self.contains, addresses[here].tolist())):
                made = torch.where(here, addresses - start + self.address_of(number), made)
        return made

    def contains(self, address: int) -> bool:
        """Whether an address lies in a buffer."""
        number = self.find(address)
        return number is not None and self._holds(number, address, address + 1)

    def name_program(self, program: int) -> str:
        """The indices of a program in its grid."""
        x, y, _ = self.grid
        linear = program - 1
        return f"({linear % x}, {linear // x % y}, {linear // (x * y)})"

    # ------------------------------------------------------------ addresses

    def locate(
        self, op: Operation, what: str, addresses: Tensor, mask: Tensor | None, width: int
    ) -> Iterator[tuple[Storage, Tensor, Tensor | None]]:
        """The buffers into whose windows active lanes point, with elements (any where lanes are off) and mask of each.

        One lane at least is active. Raises OutOfBounds.
        """
        low, high = (int(v) for v in addresses.aminmax())
        number = self.find(low)
        if number is None or not self._holds(number, low, high + width):  # perhaps only lanes that are off
            lanes = addresses
            if mask is not None:
                full = torch.broadcast_shapes(addresses.shape, mask.shape)
                lanes = addresses.expand(full)[mask.expand(full)]
            low, high = (int(v) for v in lanes.aminmax())
            if low >> WINDOW != high >> WINDOW:
                windows = addresses >> WINDOW
                for window in (lanes >> WINDOW).unique().tolist():
                    here = windows == window
                    yield from self.locate(op, what, addresses, here if mask is None else mask & here, width)
                return
            if mask is not None:
                addresses = torch.where(mask, addresses, lanes[0])
            number = self.find(low)
            if number is None or not self._holds(number, low, high + width):
                self._refuse_outside(op, what, addresses, number, width)
        buffer = self.buffers[number]
        if what != "load" and not buffer.stored:
            raise Unsupported("a store through a pointer of unknown origin")
        if (low | high) & (width - 1):
            raise Fault(f"a {what} of {width} bytes at an address that is no multiple of {width}", op.line)
        yield buffer, (addresses - self.address_of(number)) >> (width.bit_length() - 1), mask

    def _holds(self, number: int, low: int, end: int) -> bool:
        start = self.address_of(number)
        return low >= start and end <= start + len(self.buffers[number].tensor)

    def _refuse_outside(self, op: Operation, what: str, addresses: Tensor, number: int | None, width: int) -> NoReturn:
        if number is None and self.casts:
            raise Unsupported("tables of addresses")
        near = LAST - (int(addresses.min()) >> WINDOW) if number is None else number
        near = min(max(0, near), len(self.buffers) - 1)
        start = self.address_of(near)
        bad = (addresses < start) | (addresses > start + len(self.buffers[near].tensor) - width)
        where = bad.nonzero()[0].tolist()
        program = self.name_program(int(self.programs[where[0] if bad.shape[0] > 1 else 0]))
        name = self.buffers[near].name
        lanes = f"{int(bad.sum())} lanes of a {what} in program {program}"
        raise OutOfBounds(f"{lanes} lie outside every buffer, nearest {name!r}", op.line)

    # ------------------------------------------------------------ what is seen of accesses

    def see_load(
        self, op: Operation, buffer: Storage, index: Tensor, programs: Tensor, width: int, warps: Tensor | None = None
    ) -> None:
        """Logs a load, with the part of its program that each lane is of. Raises Race."""
        if buffer.poison is not None and not self.suspect:
            blank = buffer.view(BITS[width]).index_select(0, index) == buffer.poison
            if bool(blank.any()):
                at = int(blank.nonzero()[0])
                where = f"element {int(index[at])} of {buffer.name!r}"
                self.suspect = (
                    f"program {self.name_program(int(programs[at]))} loads {where}, which nothing has written"
                )
        if "isVolatile" in op.text:
            self.order(programs)
        if buffer.is_input:
            return
        loaded = buffer.log("loaded", width)
        if warps is not None and "warp" in buffer.logs:
            self._suspect_warps(buffer, *buffer.split(width, index, programs, warps))
        index, programs = buffer.split(width, index, programs)
        for name, whose in (("stored", "stored by"), ("updated", "updated by")):
            self._compare(op, buffer, name, index, programs, None, whose, "loaded")
        before = loaded.index_select(0, index)
        loaded.scatter_(0, index, torch.where((before == 0) | (before == programs), programs, SEVERAL))
        after = loaded.index_select(0, index)
        if bool((after != programs).any()):
            loaded.scatter_(0, index[after != programs], SEVERAL)

    def _suspect_warps(self, buffer: Storage, index: Tensor, programs: Tensor, warps: Tensor) -> None:
        """Notes a load of what other warps of the program have stored since all waited for one another."""
        stored, warp, phase = (buffer.logs[n].index_select(0, index) for n in ("stored", "warp", "phase"))
        early = (stored == programs) & (phase == self.phase) & (warp != warps)
        if bool(early.any()) and not self.suspect:
            at = int(early.nonzero()[0])
            self.suspect = (
                f"program {self.name_program(int(programs[at]))} loads element {int(index[at])} of {buffer.name!r}, "
                "which other lanes of it have just stored: without `tl.debug_barrier()` another warp may be late"
            )

    def store(
        self,
        op: Operation,
        buffer: Storage,
        index: Tensor,
        programs: Tensor,
        value: Tensor,
        width: int,
        warps: Tensor | None = None,
    ) -> None:
        """Stores and logs values, given as integers. Raises Race."""
        self.see_input(buffer, index, programs)
        flat, stored = buffer.view(BITS[width]), buffer.log("stored", width)
        before = flat.index_select(0, index)
        self.changes += bool(self.watchers) and not torch.equal(before, value)
        fine, by, changed = buffer.split(width, index, programs, before != value)
        told = (("stored", "stored by", "given another value"), ("loaded", "loaded by", "given another value"))
        for name, whose, now in told:
            self._compare(op, buffer, name, fine, by, changed, whose, now)
        self._compare(op, buffer, "updated", fine, by, None, "updated by", "stored")
        others = (last := stored.index_select(0, fine)) != by
        others &= last != 0
        stored.scatter_(0, fine, by)
        if warps is not None:
            buffer.log("warp", width).scatter_(0, fine, buffer.split(width, index, warps)[1])
            buffer.log("phase", width).scatter_(0, fine, by.new_full(by.shape, self.phase or 0))
        flat.scatter_(0, index, value)
        twice = flat.index_select(0, index) != value
        if bool(twice.any()):
            fine, by, twice = buffer.split(width, index, programs, twice)
            last = stored.index_select(0, fine)
            same = twice & (last == by)
            if bool(same.any()):
                at = int(same.nonzero()[0])
                where, program = f"element {int(fine[at])} of {buffer.name!r}", self.name_program(int(by[at]))
                raise Race(f"{where} is given several values by one store of program {program}", op.line)
            self._accuse(op, buffer, fine, by, last, twice, "stored by", "given another value")
        fine, by = buffer.split(width, index, programs)
        others |= stored.index_select(0, fine) != by
        if bool(others.any()):  # the same values: a later store may be of another one
            stored.scatter_(0, fine[others], SEVERAL)

    def see_update(self, op: Operation, buffer: Storage, index: Tensor, programs: Tensor, width: int) -> None:
        """Logs an atomic operation. Raises Race."""
        self.see_input(buffer, index, programs)
        updated = buffer.log("updated", width)
        index, programs = buffer.split(width, index, programs)
        for name, before in (("stored", "stored by"), ("loaded", "loaded by")):
            self._compare(op, buffer, name, index, programs, None, before, "updated atomically")
        updated.scatter_(0, index, programs)
        if op.read and not re.search(r"\b(relaxed|release), |, cta\b", op.text):
            self.order(programs)

    def order(self, programs: Tensor) -> None:
        """Notes that programs may know now what others have done."""
        if len(self.ordered) > 1:
            self.ordered[programs.to(torch.int64)] = True

    def _compare(
        self,
        op: Operation,
        buffer: Storage,
        name: str,
        index: Tensor,
        programs: Tensor,
        harmful: Tensor | None,
        before: str,
        now: str,
    ) -> None:
        """Accuses programs of what others did before, if that is harmful."""
        if name in buffer.logs:
            seen = buffer.logs[name].index_select(0, index)
            bad = (seen != 0) & (seen != programs)
            bad = bad if harmful is None else bad & harmful
            self._accuse(op, buffer, index, programs, seen, bad, before, now)

    def see_input(self, buffer: Storage, index: Tensor, programs: Tensor) -> None:
        """Notes a store to an input that must not change."""
        if buffer.is_input and not self.suspect and index.numel():
            program = self.name_program(int(programs[0]))
            self.suspect = f"program {program} writes to element {int(index[0])} of {buffer.name!r}, which is an input"

    def _accuse(
        self,
        op: Operation,
        buffer: Storage,
        index: Tensor,
        programs: Tensor,
        seen: Tensor,
        bad: Tensor,
        before: str,
        now: str,
    ) -> None:
        if not bool(bad.any()):
            return
        if len(self.ordered) > 1:
            bad = bad & ~self.ordered[programs.to(torch.int64)]
        if not bool(bad.any()):
            return
        at, one, other = (int(v[bad][0]) for v in (index, programs, seen))
        whom = "other programs" if other == SEVERAL else f"program {self.name_program(other)}"
        raise Race(
            f"element {at} of {buffer.name!r}, {before} {whom}, is {now} by program {self.name_program(one)}: "
            "programs run in no order",
            op.line,
        )
