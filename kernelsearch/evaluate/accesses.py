"""What TTIR's operations on memory do, as functions of a run, their operands' values and the programs that are on."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import torch

from kernelsearch.evaluate.arithmetic import BITS, dtype_of
from kernelsearch.evaluate.faults import Unsupported
from kernelsearch.evaluate.memory import ATOMICS, Memory, TileDescriptor, find_tile
from kernelsearch.evaluate.sums import LazySum, add, add_up
from kernelsearch.ir.text import Operation, Type

Tensor = torch.Tensor
Value = Any
"""A tensor, a LazySum or a TileDescriptor."""


class State(Protocol):
    """What a step uses of the run of a launch: the programs' indices by axis, the grid, memory, regions, and notes."""

    ids: list[Tensor]
    grid: tuple[int, int, int]
    memory: Memory
    met: set[Hashable]

    def combine(self, op: Operation, left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
        """What the region of a reduction or a scan makes of two elements."""

    def apply(self, op: Operation, args: list[Tensor], lanes: int) -> list[Value]:
        """What the region of `map_elementwise` makes of elements, of so many for each program."""


Step = Callable[[State, list[Value], "Tensor | None"], Any]
"""Gives the value of an operation, or a list of several."""


def _build_addptr(op: Operation) -> Step:
    width = _width(op.types[0].element.removeprefix("*"))

    def move(run: State, values: list[Value], act: Tensor | None) -> Value:
        address, offset = values
        if type(offset) is LazySum:
            return add(address, LazySum([part * width for part in offset.parts], torch.int64), torch.int64)
        return add(address, offset.to(torch.int64) * width, torch.int64)

    return move


def _build_pointer(op: Operation) -> Step:
    return lambda run, values, act: run.memory.buffers.translate(add_up(values[0]).to(torch.int64))


def _width(element: str) -> int:
    return torch.empty((), dtype=dtype_of(element)).element_size()


def _build_load(op: Operation) -> Step:
    kind = op.types[0]

    def load(run: State, values: list[Value], act: Tensor | None) -> Tensor:
        addresses, *rest = values
        mask, other = (*map(add_up, rest), None, None)[:2]
        return run.memory.load(op, addresses, mask, other, act, kind)

    return load


def _build_store(op: Operation) -> Step:
    shape = op.types[0].shape

    def store(run: State, values: list[Value], act: Tensor | None) -> list[Tensor]:
        addresses, value, *rest = values
        run.memory.store(op, addresses, add_up(value), add_up(rest[0]) if rest else None, act, shape)
        return []

    return store


def _build_atomic(op: Operation) -> Step:
    kind, shape = op.text.split(",")[0].split()[0], op.types[0].shape
    if kind not in ATOMICS:
        raise Unsupported(f"atomic {kind}")
    pick = ATOMICS[kind] if op.read or kind not in ("add", "fadd") else None

    def update(run: State, values: list[Value], act: Tensor | None) -> Tensor:
        addresses, value, *rest = map(add_up, values)
        return run.memory.update(op, addresses, rest[0] if rest else None, act, [value], pick, shape)

    return update


def _build_exchange(op: Operation) -> Step:
    shape = op.types[0].shape

    def exchange(run: State, values: list[Value], act: Tensor | None) -> Tensor:
        addresses, compare, value = map(add_up, values)
        bits = BITS[value.element_size()]
        pick = lambda old, compare, new: new if torch.equal(old.view(bits), compare.view(bits)) else old  # noqa: E731
        return run.memory.update(op, addresses, None, act, [compare, value], pick, shape)

    return exchange


def _build_descriptor(op: Operation) -> Step:
    nan = op.integer("padding") == 2 or "PAD_NAN" in op.text or "padding = pad_nan" in op.text

    def describe(run: State, values: list[Value], act: Tensor | None) -> TileDescriptor:
        pointer, *rest = map(add_up, values)
        return TileDescriptor(pointer, rest[: len(rest) // 2], rest[len(rest) // 2 :], nan)

    return describe


def _build_descriptor_load(op: Operation) -> Step:
    kind, block = op.types[-1], find_block(op)
    pointers = Type(block.shape, f"*{kind.element}")

    def load(run: State, values: list[Value], act: Tensor | None) -> Tensor:
        described, *at = values
        addresses, mask = find_tile(described, at, block)
        dtype = dtype_of(kind.element)
        other = torch.full((), float("nan") if described.nan_outside else 0.0).to(dtype)
        other = other.reshape((1,) * (1 + len(block.shape)))
        loaded = run.memory.load(op, addresses, mask, other, act, pointers)
        if block.shape == kind.shape:
            return loaded
        return loaded.expand(loaded.shape[0], *block.shape).reshape(loaded.shape[0], *kind.shape)

    return load


def find_block(op: Operation) -> Type:
    """The type of a descriptor's own tile; a value may have fewer axes, without those of size 1."""
    kind, named = op.types[-1], op.types[0]
    return Type(named.shape, kind.element) if math.prod(named.shape) == math.prod(kind.shape) else kind


def _build_descriptor_store(op: Operation) -> Step:
    kind, block = op.types[-1], find_block(op)

    def store(run: State, values: list[Value], act: Tensor | None) -> list[Tensor]:
        described, *at, value = values if kind_is_last else (values[0], *values[2:], values[1])
        addresses, mask = find_tile(described, at, block)
        value = add_up(value)
        if block.shape != kind.shape:
            value = value.expand(value.shape[0], *kind.shape).reshape(value.shape[0], *block.shape)
        run.memory.store(op, addresses, value, mask, act, block.shape)
        return []

    kind_is_last = re.match(r"\s*%[\w.$#-]+\[", op.text) is not None  # `%desc[%i, %j], %value`
    return store


def _build_descriptor_update(op: Operation) -> Step:
    kind, block = op.text.split(",")[0].strip(), op.types[-1]
    if kind not in ATOMICS:
        raise Unsupported(f"a descriptor's atomic {kind}")
    pick = None if kind == "add" else ATOMICS[kind]

    def update(run: State, values: list[Value], act: Tensor | None) -> list[Tensor]:
        described, *at, value = values
        addresses, mask = find_tile(described, at, block)
        run.memory.update(op, add_up(addresses), mask, act, [add_up(value)], pick, block.shape)
        return []

    return update


ACCESSES: dict[str, Callable[[Operation], Step]] = {
    "tt.addptr": _build_addptr,
    "tt.int_to_ptr": _build_pointer,
    "tt.load": _build_load,
    "tt.store": _build_store,
    "tt.atomic_rmw": _build_atomic,
    "tt.atomic_cas": _build_exchange,
    "tt.make_tensor_descriptor": _build_descriptor,
    "tt.descriptor_load": _build_descriptor_load,
    "tt.descriptor_store": _build_descriptor_store,
    "tt.descriptor_gather": _build_descriptor_load,
    "tt.descriptor_scatter": _build_descriptor_store,
    "tt.descriptor_reduce": _build_descriptor_update,
}
