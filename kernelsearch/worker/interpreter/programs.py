"""Runs the programs of a launch one by one in Triton's interpreter, in any order, with every address checked.

Triton's own executor runs the whole grid forward; this one takes the programs to run as an argument and
looks at each load and store: an unmasked lane outside the launch's buffers is `OutOfBounds`, before the
address is touched. Kernels see imagined addresses (`addresses.py`). A buffer is its whole storage: a launcher may pass a view and let strides lead outside of it;
what lies unused in a storage holds NaN (`tensors.unpacked`), and is looked at afterwards.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.interpreter import interpreter_builder as builder

from kernelsearch.worker.interpreter import combining, lean, libdevice, loops, sixteen
from kernelsearch.worker.interpreter.addresses import Places, following, settled
from kernelsearch.worker.interpreter.races import AccessLog

Program = tuple[int, int, int]


def _get_bf16(value: float) -> Any:
    """A bfloat16 constant as the interpreter keeps one: its bits in 16. Its own builder has every other type's."""
    return interpreter.TensorHandle(sixteen.rounded(np.array([float(value)])), interpreter.tl.bfloat16)


def _keeping_truth(plain: Callable[..., Any]) -> Callable[..., Any]:
    """`create_splat` that spreads a truth value as one.

    The interpreter keeps the outcome of `row < n` under its operands' type and spreads it as an int32, so that
    `(cols < m) & (row < n)` is no mask of truth values: numpy takes it for indices, and 3.9 refuses it.
    """

    def splat(self: Any, ret_ty: Any, arg: Any) -> Any:
        if arg.data.dtype != np.bool_:
            return plain(self, ret_ty, arg)
        return interpreter.TensorHandle(np.full(ret_ty.shape, arg.data, dtype=np.bool_), interpreter.tl.int1)

    return splat


if not hasattr(builder, "get_bf16"):
    builder.get_bf16 = _get_bf16
type(builder).create_splat = _keeping_truth(type(builder).create_splat)
lean.install()
libdevice.install()
loops.install()
combining.install()
sixteen.install()


class OutOfBounds(Exception):
    """A program touched memory outside every buffer of its launch."""


class Buffers(Places):
    """The address ranges that a launch may touch, by buffer."""

    def true(self, handle: Any, mask: np.ndarray, what: str) -> Any:
        """The pointer block with true addresses. Raises OutOfBounds when an active lane leaves its buffer."""
        handle = settled(self, handle)
        everywhere = handle.data
        addresses = (
            everywhere[mask] if mask.shape == everywhere.shape else everywhere[np.broadcast_to(mask, everywhere.shape)]
        )
        if not addresses.size:
            return handle
        width = np.uint64(max(1, handle.get_element_ty().primitive_bitwidth // 8))
        low, high = addresses.min(), addresses.max()
        first, last = (int(i) for i in self.owner(np.array([low, high])))
        if first == last and first >= 0 and high <= self.ends[first] - width:  # an address near 2**64 must not wrap
            return interpreter.TensorHandle(self.behind(everywhere, first), handle.dtype)
        owner = self.owner(addresses)
        bad = (owner < 0) | (addresses > self.ends[np.maximum(owner, 0)] - width)
        if bad.any():
            where = int(np.flatnonzero(bad)[0])
            near = self.names[max(0, int(owner[where]))] if self.names else "nothing"
            x, y, z = builder.grid_idx
            raise OutOfBounds(
                f"{int(bad.sum())} lanes of a {what} in program ({x}, {y}, {z}) lie outside every buffer, nearest {near!r}"
            )
        return interpreter.TensorHandle(self.behind(everywhere, None), handle.dtype)


@contextmanager
def watched(buffers: Buffers, log: AccessLog) -> Iterator[None]:
    """Inside it, the interpreter's loads, stores and atomics are checked against the buffers and logged per program."""
    plain = {
        n: getattr(builder, n)
        for n in ("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_atomic_cas")
    }

    def load(ptrs: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        on = np.asarray(
            mask.data, dtype=bool
        )  # a descriptor's mask is an array and no handle: its `data` is raw memory
        ptrs = buffers.true(ptrs, on, "load")
        log.load(ptrs, on)
        return plain["create_masked_load"](ptrs, mask, *rest, **named)

    def store(ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        on = np.asarray(mask.data, dtype=bool)
        ptrs, value = buffers.true(ptrs, on, "store"), settled(buffers, value)
        log.store(ptrs, value, on)
        return plain["create_masked_store"](ptrs, value, mask, *rest, **named)

    def rmw(op: Any, ptr: Any, value: Any, mask: Any, *rest: Any) -> Any:
        on = np.asarray(mask.data, dtype=bool)
        ptr, value = buffers.true(ptr, on, "atomic"), settled(buffers, value)
        log.update(ptr, on)
        return plain["create_atomic_rmw"](op, ptr, value, mask, *rest)

    def cas(ptr: Any, *rest: Any) -> Any:
        everywhere = np.ones_like(ptr.data, dtype=bool)
        ptr = buffers.true(ptr, everywhere, "atomic")
        log.update(ptr, everywhere)
        return plain["create_atomic_cas"](ptr, *(settled(buffers, value) for value in rest))

    builder.create_masked_load, builder.create_masked_store = load, store
    builder.create_atomic_rmw, builder.create_atomic_cas = rmw, cas
    try:
        with following(buffers):
            yield
    finally:
        for name in plain:
            delattr(builder, name)


def run_programs(
    function: Any,
    args: Mapping[str, Any],
    constexprs: frozenset[str],
    grid: Program,
    programs: Iterable[Program],
    buffers: Buffers | None = None,
    patch: Callable[[dict[str, Any]], None] | None = None,
) -> None:
    """Runs these programs of a grid.

    function is an interpreted jit function; args holds every parameter by name, tensors on the CPU, which the kernel
    sees at the places that buffers gives them; patch may change the function's globals after the language was patched (for a profile).
    """
    rewritten = function.rewrite()
    namespace = rewritten.__globals__
    before = dict(namespace)
    scope = lean.begin_launch(rewritten)
    namespace["range"] = loops.ranged
    try:
        bound = inspect.getcallargs(rewritten, **args)
        bound = {n: v if n in constexprs else _converted(v, buffers) for n, v in bound.items()}
        if patch is not None:
            patch(namespace)
        builder.set_grid_dim(*grid)
        with np.errstate(all="ignore"):
            for program in programs:
                builder.set_grid_idx(*program)
                rewritten(**bound)
    finally:
        if scope is not None:
            scope.restore()
        if patch is not None:  # the function is kept for later jobs, which judge it
            namespace.clear()
            namespace.update(before)


def _converted(value: Any, buffers: Buffers | None) -> Any:
    if isinstance(value, bool):  # up to 3.8 the interpreter makes 32 bits of it, and refuses them for an int1
        return interpreter.tl.tensor(
            interpreter.TensorHandle(np.array([value]), interpreter.tl.int1), interpreter.tl.int1
        )
    converted = interpreter._implicit_cvt(value)
    if buffers is not None and isinstance(value, torch.Tensor):
        converted.handle.data = buffers.seen(value)
    return converted


def ordered(grid: Program, order: str, seed: int = 0) -> list[Program]:
    """All programs of a grid: forward, reversed, or shuffled by the seed."""
    programs = [(x, y, z) for x in range(grid[0]) for y in range(grid[1]) for z in range(grid[2])]
    if order == "reversed":
        programs.reverse()
    elif order == "shuffled":
        np.random.default_rng(seed).shuffle(programs)
        programs = [tuple(int(i) for i in p) for p in programs]
    return programs
