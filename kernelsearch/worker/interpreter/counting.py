"""Counts what a launch does by running a few of its programs in the interpreter, on lazily zeroed memory.

Loops are sampled too: three iterations of a long loop stand for all of them. The values computed are
meaningless; the addresses, sizes and trip counts are those of the real grid.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.interpreter import interpreter_builder as builder

from kernelsearch.measure.counts import Counts
from kernelsearch.worker.interpreter.addresses import following, settled
from kernelsearch.worker.interpreter.programs import Buffers, Program

SAMPLED_ITERATIONS = 3
_SPECIAL = {np.exp, np.exp2, np.log, np.log2, np.sqrt, np.sin, np.cos, np.divide}


class Tally:
    """Running totals of the sampled programs; weight is how many real events one sampled event stands for."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self.buffers = Buffers(tensors)
        self.weight = 1.0
        self.total: dict[str, float] = defaultdict(float)
        self.by_buffer: dict[int, float] = defaultdict(float)
        self.dots: dict[str, float] = defaultdict(float)
        self.tile = 0

    def access(self, kind: str, handle: Any, mask: np.ndarray) -> None:
        active = float(np.count_nonzero(mask)) * (handle.data.size / max(1, mask.size))
        size = max(1, handle.get_element_ty().primitive_bitwidth // 8)
        self.total[f"{kind}_bytes"] += self.weight * active * size
        if kind == "load":
            self.total["loads"] += self.weight
            self.total["load_elements"] += self.weight * handle.data.size
        if handle.data.size > 1:
            self.tile = max(self.tile, handle.data.size)
        if active:
            owner = int(self.buffers.owner(handle.data.reshape(-1)[:1])[0])
            self.by_buffer[owner] += self.weight * active * size

    def result(self, handle: Any, special: bool) -> None:
        if handle.data.size > 1 and not handle.dtype.scalar.is_int():
            self.total["special" if special else "elements"] += self.weight * handle.data.size

    def counts(self, function: str, programs: int, sampled: int) -> Counts:
        """The totals scaled from the sampled programs to the whole grid."""
        scale = programs / max(1, sampled)
        sizes = (self.buffers.ends - self.buffers.starts).tolist()
        footprint = sum(min(scale * n, sizes[i] if 0 <= i < len(sizes) else scale * n) for i, n in self.by_buffer.items())
        named = ("load_bytes", "store_bytes", "elements", "special", "reductions", "atomics", "loads", "load_elements")
        return Counts(
            function, programs, footprint_bytes=footprint, iterations=self.total["iterations"] / max(1, sampled),
            flops_dot={k: v * scale for k, v in self.dots.items()}, tile=self.tile,
            **{name: self.total[name] * scale for name in named},
        )  # fmt: skip

    def range(self, first: Any, last: Any = None, step: Any = None, **_: Any) -> Iterator[int]:
        """A range that yields a few of its indices, each with the weight of those left out."""
        low, high = (0, _int(first)) if last is None else (_int(first), _int(last))
        whole = range(low, high, 1 if step is None else _int(step))
        n = len(whole)
        picks = whole if n <= SAMPLED_ITERATIONS else [whole[0], whole[n // 2], whole[-1]]
        outer = self.weight
        self.total["iterations"] += outer * n
        try:
            for index in picks:
                self.weight = outer * n / len(picks)
                yield index
        finally:
            self.weight = outer

    def unrolled(self, *bounds: Any, loop_unroll_factor: Any = None, **_: Any) -> Iterator[int]:
        """`tl.range`: as `range`; iterations that the compiler lays side by side count as one."""
        factor = max(1, _int(loop_unroll_factor)) if loop_unroll_factor is not None else 1
        before = self.total["iterations"]
        yield from self.range(*bounds)
        self.total["iterations"] = before + (self.total["iterations"] - before) / factor

    def static(self, *bounds: Any, **_: Any) -> Iterator[int]:
        """`tl.static_range`: as `range`, but there is no loop in the binary."""
        before = self.total["iterations"]
        yield from self.range(*bounds)
        self.total["iterations"] = before

    def patch(self, namespace: dict[str, Any]) -> None:
        """Puts the sampling ranges where the kernel's code looks for ranges.

        The language module itself is patched again by every helper that the interpreter calls, so the
        kernel is given a stand-in for it; the module stays visible under another name, as Triton wants.
        """
        namespace["range"] = self.range
        language = namespace.setdefault("_language", namespace["tl"])
        namespace["tl"] = _Language(language, {"range": self.unrolled, "static_range": self.static})


class _Language:
    """A module with some of its names replaced."""

    def __init__(self, module: Any, replaced: Mapping[str, Any]) -> None:
        self._module, self._replaced = module, replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced[name] if name in self._replaced else getattr(self._module, name)


@contextmanager
def tallied(tally: Tally) -> Iterator[None]:
    """Inside it, everything that the interpreter does is counted and out-of-bounds accesses are errors."""
    plain = {
        name: getattr(builder, name)
        for name in ("create_masked_load", "create_masked_store", "create_atomic_rmw", "create_dot",
                     "binary_op", "unary_op", "ternary_op")
    }  # fmt: skip
    reduce = interpreter.ReduceOps.apply

    def load(ptrs: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        on = np.asarray(mask.data)  # a descriptor's mask is an array and no handle: its `data` is raw memory
        tally.access("load", ptrs, on)
        ptrs = tally.buffers.true(ptrs, on, "load")
        return plain["create_masked_load"](ptrs, mask, *rest, **named)

    def store(ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> None:
        on = np.asarray(mask.data)
        tally.buffers.true(ptrs, on, "store")
        tally.access("store", ptrs, on)  # nothing is written, so that the zeros stay unallocated

    def rmw(op: Any, ptr: Any, value: Any, mask: Any, *rest: Any) -> Any:
        tally.buffers.true(ptr, mask.data, "atomic")
        tally.access("store", ptr, mask.data)
        tally.total["atomics"] += tally.weight * ptr.data.size
        return interpreter.TensorHandle(np.zeros_like(value.data), value.dtype)

    def dot(a: Any, b: Any, d: Any, *rest: Any) -> Any:
        (m, k), n = a.data.shape[-2:], b.data.shape[-1]
        bits = a.get_element_ty().primitive_bitwidth
        tally.dots[{8: "8", 16: "16"}.get(bits, "fp32")] += tally.weight * 2.0 * m * n * k
        tally.tile = max(tally.tile, m * n)
        return interpreter.TensorHandle(np.zeros_like(d.data), d.dtype.scalar)

    def elementwise(name: str) -> Any:
        def apply(*args: Any) -> Any:
            result = plain[name](*args)
            tally.result(result, args[-1] in _SPECIAL)
            return result

        return apply

    def counted_reduce(self: Any, value: Any) -> Any:
        if not isinstance(value, tuple):  # a single operand comes back here as a tuple of one
            tally.total["reductions"] += tally.weight
            tally.total["elements"] += tally.weight * value.handle.data.size
        return reduce(self, value)

    for name, function in (("create_masked_load", load), ("create_masked_store", store), ("create_atomic_rmw", rmw),
                           ("create_dot", dot)):  # fmt: skip
        setattr(builder, name, function)
    for name in ("binary_op", "unary_op", "ternary_op"):
        setattr(builder, name, elementwise(name))
    interpreter.ReduceOps.apply = counted_reduce
    try:
        with following(tally.buffers):
            yield
    finally:
        for name in plain:
            delattr(builder, name)
        interpreter.ReduceOps.apply = reduce


def sampled_programs(grid: Program) -> list[Program]:
    """The first program and the middle one."""
    first, middle = (0, 0, 0), tuple(n // 2 for n in grid)
    return [first] if middle == first else [first, middle]  # type: ignore[list-item]


def _int(value: Any) -> int:
    handle = getattr(value, "handle", None)
    if handle is not None:
        return int(handle.data.reshape(-1)[0])
    return int(getattr(value, "value", value))
