"""A log of which program touched which element: it shows races that the interpreter's one-by-one grid hides.

On a GPU the programs of a launch run in no order, so a launch races when
- two programs store different values to one element (the same value is harmless: a last tile shifted back over its
  neighbour stores it, and the result is the same in any order),
- one program loads, or updates atomically, what another has stored,
- one program stores or loads what another has updated atomically,
- one program stores another value to, or updates atomically, what another has loaded,
- one block stores different values to one element.
A program that has made an atomic operation before the second access is not accused: it may hold a lock or be the last
to arrive at a counter, which only an atomic can tell it. What such a kernel hides is left to the reversed and shuffled
grids and, on a GPU, to three equal runs.

Two more things are only noted (`suspect`), for a kernel that is right in all else: a load of memory that nothing has
written since it was allocated, by which a kernel could know an old answer or keep one, and a store to an input, undone
later or not. compute-sanitizer's initcheck and a reader of the launcher would object to both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.interpreter import interpreter_builder as builder

from kernelsearch.evaluate.faults import Race
from kernelsearch.worker.launcher.standin import fill_with_poison


class AccessLog:
    """The last program that stored to, the last that updated, and the first that loaded each element of a launch's
    buffers. Programs run one after another, so if the first that loaded an element is the running one, no other has.

    fresh and inputs are addresses of storages: those from `torch.empty` or SCRATCH, which hold poison where nothing was
    written, and those of the task's inputs that must not change. `blank` holds the programs that loaded poison,
    `unwritten` says by storage what the first of them loaded.
    """

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        fresh: frozenset[int] = frozenset(),
        inputs: frozenset[int] = frozenset(),
    ) -> None:
        buffers = sorted(
            (t.untyped_storage().data_ptr(), t.untyped_storage().nbytes(), t.element_size(), name)
            for name, t in tensors.items()
            if t.untyped_storage().nbytes()
        )
        # one byte may hold poison by chance
        self.fresh = [start in fresh for start, *_ in buffers]
        known = [is_fresh and width in (2, 4, 8) for is_fresh, (_, _, width, _) in zip(self.fresh, buffers)]
        self.poison = [_poison_bits(tensors[b[-1]].dtype) if is_known else None for b, is_known in zip(buffers, known)]
        self.protected = [start in inputs for start, *_ in buffers]
        self.suspect = ""
        self.writing: set[int] = set()
        self.blank: set[int] = set()
        self.unwritten: dict[int, str] = {}
        self.names = [name for *_, name in buffers]
        self.starts = np.array([start for start, *_ in buffers], dtype=np.uint64)
        self.widths = [width for _, _, width, _ in buffers]
        self.sizes = [-(-size // width) for _, size, width, _ in buffers]
        self.stored: list[np.ndarray | None] = [None] * len(buffers)
        self.updated: list[np.ndarray | None] = [None] * len(buffers)
        self.loaded: list[np.ndarray | None] = [None] * len(buffers)
        self.program, self.ordered = -1, False

    def load(self, handle: Any, mask: np.ndarray) -> None:
        self._begin_access()
        for buffer, index, lanes in self._find_touched(handle, mask):
            unseen = self.program not in self.blank or int(self.starts[buffer]) not in self.unwritten
            if self.poison[buffer] is not None and unseen:
                self._note_unwritten(handle, lanes, buffer, index)
            self._refuse_others(self.stored, buffer, index, "stored by", "loaded")
            self._refuse_others(self.updated, buffer, index, "updated by", "loaded")
            if not self.protected[buffer]:  # a store to an input is refused as such
                self._record(self.loaded, buffer, index, first=True)

    def store(self, handle: Any, value: Any, mask: np.ndarray) -> None:
        """To be called before the store is made."""
        self._begin_access()
        for buffer, index, lanes in self._find_touched(handle, mask):
            self._note_written(buffer, index)
            values = _bits(np.broadcast_to(value.data, handle.data.shape)[lanes])
            if index.size > 1:
                self._refuse_twice(index, values, buffer)

            def is_equal(lanes: np.ndarray = lanes, values: np.ndarray = values) -> np.ndarray:
                return _bits(_in_memory(handle, lanes, value.data.dtype)) == values

            for seen, before in ((self.stored, "stored by"), (self.loaded, "loaded by")):
                self._refuse_others(seen, buffer, index, before, "given another value", is_equal)
            self._refuse_others(self.updated, buffer, index, "updated by", "stored")
            self._record(self.stored, buffer, index)

    def update(self, handle: Any, mask: np.ndarray) -> None:
        """To be called before an atomic operation is made."""
        self._begin_access()
        for buffer, index, _ in self._find_touched(handle, mask):
            self._note_written(buffer, index)
            self._refuse_others(self.stored, buffer, index, "stored by", "updated atomically")
            self._refuse_others(self.loaded, buffer, index, "loaded by", "updated atomically")
            self._record(self.updated, buffer, index)
        self.ordered = True

    def withdraw(self, tensors: Mapping[str, torch.Tensor]) -> bool:
        """Puts poison wherever the `blank` programs stored; False if a buffer has no poison."""
        for name, stored, poison in zip(self.names, self.stored, self.poison, strict=True):
            if stored is None or not (theirs := np.isin(stored, list(self.blank))).any():
                continue
            if poison is None:
                return False
            _memory_bits(tensors[name])[theirs] = poison
        return True

    def hide_unwritten(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Puts poison where no program stored in buffers that held none: zeros of the launcher, inputs to be changed.

        For a launch of which a few programs ran: what the others would have written must not look like an answer.
        Not in integers, which a later launch may use as places, nor between the rows of an input.
        """
        for name, _, stored in self.list_filled():
            if tensors[name].is_floating_point():
                memory = _memory_bits(tensors[name])
                put_poison(tensors[name], (stored < 0) & (memory != np.iinfo(memory.dtype).max))

    def list_filled(self) -> list[tuple[str, int, np.ndarray]]:
        """(Name, storage, who stored) of each buffer that was written and held no poison, inputs aside."""
        each = zip(self.names, self.starts.tolist(), self.stored, self.poison, self.protected, strict=True)
        return [(n, start, s) for n, start, s, poison, kept in each if s is not None and poison is None and not kept]

    def find_written(self) -> dict[int, np.ndarray]:
        """By storage, which program wrote each element, -1 for none; what `blank` programs stored is not written."""
        written = {}
        for start, stored, updated in zip(self.starts.tolist(), self.stored, self.updated, strict=True):
            if stored is not None:
                written[start] = np.where(np.isin(stored, list(self.blank)), -1, stored)
            if updated is not None:
                written[start] = np.maximum(updated, written.get(start, -1))
        return written

    @property
    def uses_atomics(self) -> bool:
        return any(updated is not None for updated in self.updated)

    # ------------------------------------------------------------ helpers

    def _begin_access(self) -> None:
        (x, y, z), (_, ny, nz) = builder.grid_idx, builder.grid_dim
        program = (x * ny + y) * nz + z
        if program != self.program:
            self.program, self.ordered = program, False

    def _find_touched(self, handle: Any, mask: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
        """(buffer, element indices, lanes) of the active lanes, all of them inside buffers."""
        lanes = mask if mask.shape == handle.data.shape else np.broadcast_to(mask, handle.data.shape)
        addresses = handle.data[lanes]
        if not addresses.size:
            return []
        owners = np.searchsorted(self.starts, addresses, side="right") - 1
        first, last = int(owners.min()), int(owners.max())
        if first == last:
            return [(first, self._elements(addresses, first), lanes)]
        touched = []
        for owner in np.unique(owners).tolist():
            mine = lanes.copy()
            mine[lanes] = owners == owner
            touched.append((owner, self._elements(handle.data[mine], owner), mine))
        return touched

    def _elements(self, addresses: np.ndarray, buffer: int) -> np.ndarray:
        return ((addresses - self.starts[buffer]) // np.uint64(self.widths[buffer])).astype(np.int64)

    def _record(self, seen: list[np.ndarray | None], buffer: int, index: np.ndarray, first: bool = False) -> None:
        """Notes that this program touched these elements; first: where no program is noted."""
        programs = seen[buffer]
        if programs is None:
            programs = seen[buffer] = np.full(self.sizes[buffer], -1, dtype=np.int32)
        programs[index[programs[index] < 0] if first else index] = self.program

    def _note_written(self, buffer: int, index: np.ndarray) -> None:
        self.writing.add(self.program)
        if self.protected[buffer] and not self.suspect:
            where = self._element(buffer, index[0])
            self.suspect = f"program {_grid(self.program)} writes to {where}, which is an input"

    def _note_unwritten(self, handle: Any, lanes: np.ndarray, buffer: int, index: np.ndarray) -> None:
        bits = np.dtype(f"u{self.widths[buffer]}")
        untouched = np.flatnonzero(_in_memory(handle, lanes, bits) == np.array(self.poison[buffer], dtype=bits))
        if untouched.size:
            self.blank.add(self.program)
            where = self._element(buffer, index[untouched[0]])
            said = f"program {_grid(self.program)} loads {where}, which nothing has written"
            self.suspect = self.suspect or self.unwritten.setdefault(int(self.starts[buffer]), said)

    def _refuse_twice(self, index: np.ndarray, values: np.ndarray, buffer: int) -> None:
        """Raises Race if one block stores several values to one element."""
        if index[-1] - index[0] == index.size - 1 and (np.diff(index) == 1).all():
            return
        order = np.argsort(index, kind="stable")
        twice = np.flatnonzero((np.diff(index[order]) == 0) & (values[order][1:] != values[order][:-1]))
        if twice.size:
            raise Race(
                f"{self._element(buffer, index[order][twice[0]])} is given several values by one store of "
                f"program {_grid(self.program)}"
            )

    def _refuse_others(
        self,
        seen: list[np.ndarray | None],
        buffer: int,
        index: np.ndarray,
        before: str,
        now: str,
        is_harmless: Callable[[], np.ndarray] | None = None,
    ) -> None:
        """Raises Race if another program has touched one of these elements, unless that is harmless or in order."""
        programs = seen[buffer]
        if programs is None or self.ordered:
            return
        others = programs[index]
        wrong = (others >= 0) & (others != self.program)
        if is_harmless is not None and wrong.any():
            wrong &= ~is_harmless()
        if wrong.any():
            at = int(np.argmax(wrong))
            raise Race(
                f"{self._element(buffer, index[at])}, {before} program {_grid(int(others[at]))}, is {now} by program "
                f"{_grid(self.program)}: programs run in no order"
            )

    def _element(self, buffer: int, index: int) -> str:
        return f"element {int(index)} of {self.names[buffer]!r}"


def _grid(program: int) -> tuple[int, int, int]:
    _, ny, nz = builder.grid_dim
    return program // (ny * nz), program // nz % ny, program % nz


def _in_memory(handle: Any, lanes: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The present values at the addresses of these lanes."""
    return interpreter._interpreter.load(handle.data, lanes, np.zeros(handle.data.shape, dtype), dtype)[lanes]


@cache
def _poison_bits(dtype: torch.dtype) -> int:
    """The bits of an element that was poisoned when it was allocated."""
    one = torch.empty(1, dtype=dtype)
    fill_with_poison(one)
    return int(_memory_bits(one).item())


def put_poison(tensor: torch.Tensor, where: np.ndarray) -> None:
    """Overwrites these elements of a tensor's storage with poison."""
    _memory_bits(tensor)[where] = _poison_bits(tensor.dtype)


def _memory_bits(tensor: torch.Tensor) -> np.ndarray:
    """A tensor's storage as unsigned integers, one for each element."""
    raw = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).numpy()
    return raw.view(f"u{tensor.element_size()}")


def _bits(values: np.ndarray) -> np.ndarray:
    """The values as unsigned integers, so that NaN equals itself."""
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
