"""Runs the programs of a launch one by one in Triton's interpreter, in any order, with every address checked.

Triton's own executor runs the whole grid forward. This one runs the given programs and checks each load and store: an
active lane outside the launch's buffers raises `OutOfBounds` before the address is touched. Kernels see imagined
addresses (`addresses.py`). A buffer is its whole storage, because a launcher may pass a view and let strides lead
outside of it; the unused part of a storage holds NaN (`tensors.unpack`) and is checked afterwards.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.interpreter import interpreter_builder as builder
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelsearch.worker.interpreter import (
    eight_bits,
    integers,
    libdevice,
    logic,
    loops,
    reductions,
    shortcuts,
    sixteen_bits,
    waiting,
)
from kernelsearch.worker.interpreter.addresses import Buffers, drop_lanes, follow_pointers, wrap_method
from kernelsearch.worker.launcher.standin import replace_attributes

Program = tuple[int, int, int]
MOST_PROGRAMS = 2**21
"""Programs of a launch that can be run one by one: each takes a tenth of a millisecond at least."""


def _get_bf16(value: float) -> Any:
    """A bfloat16 constant as its 16 bits; Triton's own builder makes those of every other type."""
    return interpreter.TensorHandle(sixteen_bits.round_to_bf16(np.array([float(value)])), interpreter.tl.bfloat16)


def _splat(plain: Callable[..., Any], self: Any, ret_ty: Any, arg: Any) -> Any:
    """Spreads a truth value as one.

    The interpreter labels the result of `row < n` with its operands' type and spreads it as an int32. Then
    `(cols < m) & (row < n)` is no mask of truth values: numpy takes it for indices, and Triton 3.9 refuses it.
    """
    if arg.data.dtype != np.bool_:
        return plain(self, ret_ty, arg)
    return interpreter.TensorHandle(np.full(ret_ty.shape, arg.data, dtype=np.bool_), interpreter.tl.int1)


if not hasattr(builder, "get_bf16"):
    builder.get_bf16 = _get_bf16
wrap_method(type(builder), "create_splat", _splat)
shortcuts.install()
libdevice.install()
loops.install()
logic.install()
waiting.install()
reductions.install()
integers.install()
sixteen_bits.install()
eight_bits.install()


@contextmanager
def watch(
    buffers: Buffers, log: Any, fill: Callable[[Any, np.ndarray, Any], Any] | None = None, undefined: bool = False
) -> Iterator[None]:
    """Within the context, the interpreter's loads, stores and atomics are checked and logged per program.

    log has the methods `load`, `store` and `update` of an `AccessLog`. fill, if given, changes what a load gives.
    undefined: lanes that are masked without `other` get odd values, not 0.
    """
    plain_load, plain_store = builder.create_masked_load, builder.create_masked_store
    plain_rmw, plain_cas = builder.create_atomic_rmw, builder.create_atomic_cas
    waiting.MEMORY.watchers = 0

    def write(ptrs: Any, on: np.ndarray, operation: Callable[[], Any]) -> Any:
        return waiting.MEMORY.write(ptrs, on, max(1, ptrs.get_element_ty().primitive_bitwidth // 8), operation)

    def load(ptrs: Any, mask: Any, other: Any = None, *rest: Any, **named: Any) -> Any:
        on = _as_lanes(mask)
        ptrs = buffers.to_true_addresses(ptrs, on, "load")
        log.load(ptrs, on)
        other = _make_odd(ptrs) if undefined and other is None else other
        loaded = plain_load(ptrs, mask, other, *rest, **named)
        return loaded if fill is None else fill(ptrs, on, loaded)

    def store(ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        on = _as_lanes(mask)
        ptrs, value = buffers.to_true_addresses(ptrs, on, "store"), drop_lanes(buffers, value)
        log.store(ptrs, value, on)
        return write(ptrs, on, lambda: plain_store(ptrs, value, mask, *rest, **named))

    def rmw(op: Any, ptr: Any, value: Any, mask: Any, *rest: Any) -> Any:
        on = _as_lanes(mask)
        ptr, value = buffers.to_true_addresses(ptr, on, "atomic"), drop_lanes(buffers, value)
        log.update(ptr, on)
        return write(ptr, on, lambda: plain_rmw(op, ptr, value, mask, *rest))

    def cas(ptr: Any, *rest: Any) -> Any:
        on = np.ones_like(ptr.data, dtype=bool)
        ptr = buffers.to_true_addresses(ptr, on, "atomic")
        log.update(ptr, on)
        return write(ptr, on, lambda: plain_cas(ptr, *(drop_lanes(buffers, value) for value in rest)))

    memory = {"create_masked_load": load, "create_masked_store": store}
    atomics = {"create_atomic_rmw": rmw, "create_atomic_cas": cas}
    with replace_attributes(builder, **memory, **atomics), follow_pointers(buffers):
        yield


def _make_odd(ptrs: Any) -> Any:
    """Values that hardly leave any result as it was: of floats, NaN and the largest by turns."""
    kind = ptrs.get_element_ty()
    dtype = np.dtype(interpreter._get_np_dtype(kind))
    odd = [np.nan, np.finfo(dtype).max] if dtype.kind == "f" else np.array([-1, 0x5577]).astype(dtype)
    return interpreter.TensorHandle(np.resize(np.array(odd, dtype), ptrs.data.shape), kind)


def _as_lanes(mask: Any) -> np.ndarray:
    """The truth values of a mask: a handle, or a descriptor's plain array, whose `data` is raw memory."""
    return np.asarray(mask.data, dtype=bool)


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

    function: an interpreted jit function. args: every parameter by name, tensors on the CPU, which the kernel sees at
    the addresses of buffers. patch: may change the function's globals once the language is patched (for a profile).
    """
    rewritten = function.rewrite()
    namespace = rewritten.__globals__
    before = dict(namespace)
    scope = shortcuts.begin_launch(rewritten)
    namespace["range"] = loops.iterate
    try:
        bound = inspect.getcallargs(rewritten, **args)
        bound = {n: v if n in constexprs else _convert(v, buffers) for n, v in bound.items()}
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
        if patch is not None:  # later jobs judge the same function
            namespace.clear()
            namespace.update(before)


def _convert(value: Any, buffers: Buffers | None) -> Any:
    tl = interpreter.tl
    if isinstance(value, bool):  # up to 3.8 the interpreter makes 32 bits of it, and refuses them for an int1
        return tl.tensor(interpreter.TensorHandle(np.array([value]), tl.int1), tl.int1)
    converted = interpreter._implicit_cvt(value)
    if buffers is not None and isinstance(value, torch.Tensor):
        converted.handle.data = buffers.address_of(value)
    if buffers is not None and isinstance(value, TensorDescriptor):
        converted.handle.base.data = buffers.address_of(value.base)
    return converted


def order_programs(grid: Program, order: str, seed: int = 0) -> list[Program]:
    """All programs of a grid: forward, reversed, or shuffled by the seed. Raises EndlessLoop for too many to run."""
    if math.prod(grid) > MOST_PROGRAMS:
        raise waiting.EndlessLoop(f"a grid of {math.prod(grid):,} programs does not end in the interpreter")
    programs = list(itertools.product(*map(range, grid)))
    if order == "reversed":
        programs.reverse()
    elif order == "shuffled":
        programs = [programs[i] for i in np.random.default_rng(seed).permutation(len(programs))]
    return programs
