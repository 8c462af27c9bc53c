"""Which program touched which element: what the interpreter's one-by-one grid hides, a log of accesses shows.

On a GPU the programs of a launch run in no order, so a launch races when
- two programs store different values to one element (storing the same value is benign: a last tile shifted
  back over its neighbour does it, and whatever the order, the answer is one),
- one program loads, or updates atomically, what another has stored,
- one program stores or loads what another has updated atomically,
- one block stores different values to one element.
A program that has made an atomic operation of its own before the second access is not accused: it may hold a lock
or be the last to arrive at a counter, which an atomic and nothing else can tell it. What such a kernel hides is left
to the reversed and shuffled grids and, on a GPU, to three equal runs.

Two more things are only noted (`suspect`), for a kernel that is right in all else: a load of memory that nothing has
written since it was allocated, by which a kernel could know an old answer or keep one, and a store to an input, put
back later or not. Both are what compute-sanitizer's initcheck and a reader of the launcher would object to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.interpreter import interpreter_builder as builder

from kernelsearch.worker.launcher.standin import fill_with_poison


class Race(Exception):
    """Two programs of a launch touched one element in an order that nothing decides."""


class AccessLog:
    """The last program that stored to, and the last that updated, each element of a launch's buffers.

    fresh and inputs are addresses of storages: those that `torch.empty` or SCRATCH gave, which hold poison where nothing
    was written, and those of the task's inputs that are not to be changed. blank are the programs that loaded poison.
    """

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        fresh: frozenset[int] = frozenset(),
        inputs: frozenset[int] = frozenset(),
    ) -> None:
        found = sorted(
            (t.untyped_storage().data_ptr(), t.untyped_storage().nbytes(), t.element_size(), name)
            for name, t in tensors.items()
            if t.untyped_storage().nbytes()
        )
        self.poison = [_poison_bits(tensors[name]) if start in fresh else None for start, _, _, name in found]
        self.kept = [start in inputs for start, *_ in found]
        self.suspect = ""
        self.writing: set[int] = set()
        self.blank: set[int] = set()
        self.names = [name for *_, name in found]
        self.starts = np.array([start for start, *_ in found], dtype=np.uint64)
        self.widths = [width for _, _, width, _ in found]
        sizes = [-(-size // width) for _, size, width, _ in found]
        self.stored: list[np.ndarray | None] = [None] * len(found)
        self.updated: list[np.ndarray | None] = [None] * len(found)
        self.sizes = sizes
        self.program, self.ordered = -1, False

    def load(self, handle: Any, mask: np.ndarray) -> None:
        me = self._program()
        for buffer, index, lanes in self._touched(handle, mask):
            if self.poison[buffer] is not None and me not in self.blank:
                self._note_unwritten(handle, lanes, buffer, index)
            for seen, how in ((self.stored[buffer], "stored"), (self.updated[buffer], "updated")):
                if seen is not None and not self.ordered:
                    others = seen[index]
                    self._refuse((others >= 0) & (others != me), others, buffer, index, f"{how} by", "loaded")

    def store(self, handle: Any, value: Any, mask: np.ndarray) -> None:
        """To be called before the store is made."""
        me = self._program()
        for buffer, index, lanes in self._touched(handle, mask):
            self._note_written(me, buffer, index)
            values = _bits(np.broadcast_to(value.data, handle.data.shape)[lanes])
            stored = self._array(self.stored, buffer)
            if index.size > 1:
                self._refuse_twice(index, values, buffer)
            if not self.ordered:
                others = stored[index]
                conflict = (others >= 0) & (others != me)
                if conflict.any():
                    present = _bits(self._present(handle, value, lanes))
                    self._refuse(
                        conflict & (present != values), others, buffer, index, "stored by", "given another value"
                    )
                updated = self.updated[buffer]
                if updated is not None:
                    others = updated[index]
                    self._refuse((others >= 0) & (others != me), others, buffer, index, "updated by", "stored")
            stored[index] = me

    def update(self, handle: Any, mask: np.ndarray) -> None:
        """To be called before an atomic operation is made."""
        me = self._program()
        for buffer, index, _ in self._touched(handle, mask):
            self._note_written(me, buffer, index)
            stored = self.stored[buffer]
            if stored is not None and not self.ordered:
                others = stored[index]
                self._refuse((others >= 0) & (others != me), others, buffer, index, "stored by", "updated atomically")
            self._array(self.updated, buffer)[index] = me
        self.ordered = True

    def withdraw(self, tensors: Mapping[str, torch.Tensor]) -> bool:
        """Puts poison where the `blank` programs, which loaded what nothing had written, stored; False where it cannot."""
        for name, stored, poison, width in zip(self.names, self.stored, self.poison, self.widths, strict=True):
            if stored is None or not (theirs := np.isin(stored, list(self.blank))).any():
                continue
            if poison is None:
                return False
            whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[width]
            bits = np.array(poison, dtype=f"u{width}").view(f"i{width}").item()
            flat = torch.empty(0, dtype=whole).set_(tensors[name].untyped_storage(), 0, (stored.size,), (1,))
            flat[torch.from_numpy(theirs)] = bits
        return True

    @property
    def uses_atomics(self) -> bool:
        return any(updated is not None for updated in self.updated)

    # ------------------------------------------------------------ helpers

    def _program(self) -> int:
        (x, y, z), (_, ny, nz) = builder.grid_idx, builder.grid_dim
        program = (x * ny + y) * nz + z
        if program != self.program:
            self.program, self.ordered = program, False
        return program

    def _touched(self, handle: Any, mask: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """(buffer, element indices, lanes) of the active lanes, all of them inside buffers."""
        lanes = np.broadcast_to(mask, handle.data.shape).astype(bool)
        addresses = handle.data[lanes]
        if not addresses.size:
            return []
        owners = np.searchsorted(self.starts, addresses, side="right") - 1
        first = int(owners[0])
        if (owners == first).all():
            return [(first, self._index(addresses, first), lanes)]
        found = []
        for owner in np.unique(owners):
            mine = lanes.copy()
            mine[lanes] = owners == owner
            found.append((int(owner), self._index(handle.data[mine], int(owner)), mine))
        return found

    def _index(self, addresses: np.ndarray, buffer: int) -> np.ndarray:
        return ((addresses - self.starts[buffer]) // np.uint64(self.widths[buffer])).astype(np.int64)

    def _array(self, kept: list[np.ndarray | None], buffer: int) -> np.ndarray:
        array = kept[buffer]
        if array is None:
            array = kept[buffer] = np.full(self.sizes[buffer], -1, dtype=np.int32)
        return array

    def _note_written(self, me: int, buffer: int, index: np.ndarray) -> None:
        self.writing.add(me)
        if self.kept[buffer] and not self.suspect:
            self.suspect = f"program {_grid(me)} writes to {self._element(buffer, int(index[0]))}, which is an input"

    def _note_unwritten(self, handle: Any, lanes: np.ndarray, buffer: int, index: np.ndarray) -> None:
        width = self.widths[buffer]
        bits = np.dtype(f"u{width}")
        blank = np.zeros(handle.data.shape, dtype=bits)
        present = interpreter._interpreter.load(handle.data, lanes, blank, bits)[lanes]
        untouched = np.flatnonzero(present == np.array(self.poison[buffer], dtype=bits))
        if untouched.size:
            self.blank.add(self.program)
        if untouched.size and not self.suspect:
            where = self._element(buffer, int(index[untouched[0]]))
            self.suspect = f"program {_grid(self.program)} loads {where}, which nothing has written"

    @staticmethod
    def _present(handle: Any, value: Any, lanes: np.ndarray) -> np.ndarray:
        data = np.ascontiguousarray(np.broadcast_to(value.data, handle.data.shape))
        return interpreter._interpreter.load(handle.data, lanes, np.zeros_like(data), data.dtype)[lanes]

    def _refuse_twice(self, index: np.ndarray, values: np.ndarray, buffer: int) -> None:
        """One block that stores several values to one element."""
        if index[-1] - index[0] == index.size - 1 and (np.diff(index) == 1).all():
            return
        order = np.argsort(index, kind="stable")
        near = np.flatnonzero((np.diff(index[order]) == 0) & (values[order][1:] != values[order][:-1]))
        if near.size:
            raise Race(
                f"{self._element(buffer, int(index[order][near[0]]))} is given several values by one store of "
                f"program {_grid(self.program)}"
            )

    def _refuse(
        self, wrong: np.ndarray, others: np.ndarray, buffer: int, index: np.ndarray, before: str, now: str
    ) -> None:
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise Race(
                f"{self._element(buffer, int(index[at]))}, {before} program {_grid(int(others[at]))}, is {now} by program "
                f"{_grid(self.program)}: programs run in no order"
            )

    def _element(self, buffer: int, index: int) -> str:
        return f"element {index} of {self.names[buffer]!r}"


def _grid(program: int) -> tuple[int, int, int]:
    _, ny, nz = builder.grid_dim
    return program // (ny * nz), program // nz % ny, program % nz


def _poison_bits(tensor: torch.Tensor) -> int | None:
    """The bits of an element that was poisoned when it was allocated; None where a byte may hold them by chance."""
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}.get(tensor.element_size())
    if whole is None:
        return None
    one = torch.empty(1, dtype=tensor.dtype)
    fill_with_poison(one)
    return int(one.view(whole).item()) % 2 ** (8 * tensor.element_size())


def _bits(values: np.ndarray) -> np.ndarray:
    """The values as unsigned integers, so that NaN equals itself."""
    values = np.ascontiguousarray(values)
    return values.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[values.dtype.itemsize])
