"""Counts a launch's work by running a few of its programs in the interpreter, on inputs drawn as they are read.

Loops are sampled too: of a long loop the last iteration, which is often a partial one, and two that stand for all
others. A secret seed draws the programs' places in their grid and the iterations: the same for all candidates, so that
the draw is no difference between them, and none can arrange to be idle where it is observed. The values of skipped work
are missing, so results mean nothing; addresses, sizes and trip counts are those of the real grid.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.interpreter import interpreter_builder as builder

from kernelsearch.measure.static_model.counts import LaunchCounts
from kernelsearch.worker.interpreter import loops
from kernelsearch.worker.interpreter.addresses import Buffers
from kernelsearch.worker.interpreter.input_values import InputValues
from kernelsearch.worker.interpreter.programs import Program, watch
from kernelsearch.worker.launcher.standin import replace_attributes

SAMPLED_ITERATIONS = 3
PROGRAMS, MORE_PROGRAMS = 2, 30
"""Programs that are counted; MORE_PROGRAMS too where those do not move as many bytes, as where lengths are data."""
_SPECIAL = {np.exp, np.exp2, np.log, np.log2, np.sqrt, np.sin, np.cos, np.divide}


class Tally:
    """Running totals of the sampled programs; weight is how many real events one sampled event stands for."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], drawn: InputValues | None = None) -> None:
        self.buffers = Buffers(tensors)
        self.drawn = drawn or InputValues(0)
        self.storages = np.sort(self.buffers.real)
        self.weight = 1.0
        self.total: dict[str, float] = defaultdict(float)
        self.by_buffer: dict[tuple[int, str], float] = defaultdict(float)
        self.dots: dict[str, float] = defaultdict(float)
        self.tile = 0

    def load(self, ptrs: Any, mask: np.ndarray) -> None:
        self.total["loads"] += self.weight
        self._count_access("load", ptrs, mask)

    def store(self, ptrs: Any, value: Any, mask: np.ndarray) -> None:
        self._count_access("store", ptrs, mask)

    def update(self, ptrs: Any, mask: np.ndarray) -> None:
        self.total["atomics"] += self.weight * ptrs.data.size
        self._count_access("store", ptrs, mask)

    def _count_access(self, kind: str, handle: Any, mask: np.ndarray) -> None:
        """Counts a load or store; handle holds the true addresses, mask says which lanes are active."""
        active = float(np.count_nonzero(mask)) * (handle.data.size / max(1, mask.size))
        size = max(1, handle.get_element_ty().primitive_bitwidth // 8)
        self.total[f"{kind}_bytes"] += self.weight * active * size
        if handle.data.size > 1:
            self.tile = max(self.tile, handle.data.size)
        if active:
            owner = (
                int(
                    np.searchsorted(
                        self.storages, handle.data[np.broadcast_to(mask, handle.data.shape)][0], side="right"
                    )
                )
                - 1
            )
            # An element that is stored and then loaded crosses the bus once; an update in place crosses it twice.
            if kind == "store" or (owner, kind) in self.by_buffer or (owner, "store") not in self.by_buffer:
                self.by_buffer[owner, kind] += self.weight * active * size

    def fill_loaded(self, ptrs: Any, mask: np.ndarray, loaded: Any) -> Any:
        """A loaded block with the values that its input would have; ptrs holds true addresses."""
        active = np.broadcast_to(mask, ptrs.data.shape).astype(bool)
        addresses = ptrs.data[active]
        if not addresses.size or not self.drawn.pools:
            return loaded
        data = np.array(np.broadcast_to(loaded.data, ptrs.data.shape))
        values = data[active]
        owners = np.searchsorted(self.storages, addresses, side="right") - 1
        for start in self.storages[np.unique(owners)].tolist():
            if start in self.drawn.pools:
                mine = self.storages[owners] == start
                values[mine] = self.drawn.fill(start, addresses[mine], values[mine])
        data[active] = values
        return interpreter.TensorHandle(data, loaded.dtype)

    def count_result(self, handle: Any, special: bool) -> None:
        if handle.data.size > 1 and not handle.dtype.scalar.is_int():
            self.total["special" if special else "elements"] += self.weight * handle.data.size

    def to_counts(self, function: str, programs: int, sampled: int) -> LaunchCounts:
        """The totals scaled from the sampled programs to the whole grid."""
        scale = programs / max(1, sampled)
        sizes = dict(enumerate((self.buffers.ends - self.buffers.starts)[np.argsort(self.buffers.real)].tolist()))
        footprint = sum(min(scale * n, sizes.get(i, math.inf)) for (i, _), n in self.by_buffer.items())
        scaled = "load_bytes store_bytes elements special reductions atomics loads".split()
        return LaunchCounts(
            function,
            programs,
            footprint_bytes=footprint,
            iterations=self.total["iterations"] / max(1, sampled),
            flops_dot={k: v * scale for k, v in self.dots.items()},
            tile=self.tile,
            **{name: self.total[name] * scale for name in scaled},
        )

    def sample_range(self, first: Any, last: Any = None, step: Any = None, **_: Any) -> Iterator[Any]:
        """A range that yields a few of its indices, each with the weight of those that it leaves out."""
        whole, kind = loops.iterations_of(first, last, step)
        n = len(whole)
        if n <= SAMPLED_ITERATIONS:
            picks = [(index, 1.0) for index in whole]
        else:
            drawn = sorted(self.drawn.rng.integers(n - 1, size=SAMPLED_ITERATIONS - 1).tolist())
            picks = [*((whole[i], (n - 1) / len(drawn)) for i in drawn), (whole[-1], 1.0)]
        outer = self.weight
        self.total["iterations"] += outer * n
        try:
            for index, stands_for in picks:
                self.weight = outer * stands_for
                yield loops.make_variable(index, kind)
        finally:
            self.weight = outer

    def sample_unrolled_range(
        self, first: Any, last: Any = None, step: Any = None, loop_unroll_factor: Any = None, **_: Any
    ) -> Iterator[Any]:
        """`tl.range`: like `range`, but iterations that the compiler unrolls into one count as one."""
        factor = max(1, loops.to_int(loop_unroll_factor)) if loop_unroll_factor is not None else 1
        before = self.total["iterations"]
        yield from self.sample_range(first, last, step)
        self.total["iterations"] = before + (self.total["iterations"] - before) / factor

    def sample_static_range(self, first: Any, last: Any = None, step: Any = None, **_: Any) -> Iterator[int]:
        """`tl.static_range`: like `range` with constants as indices, but the binary has no loop."""
        before = self.total["iterations"]
        yield from map(loops.to_int, self.sample_range(first, last, step))
        self.total["iterations"] = before

    def patch(self, namespace: dict[str, Any]) -> None:
        """Puts the sampling ranges where the kernel's code looks for ranges.

        Every helper that the interpreter calls patches the language module again, so the kernel gets a stand-in for it;
        the module stays visible under another name, because Triton needs it.
        """
        namespace["range"] = self.sample_range
        language = namespace.setdefault("_language", namespace["tl"])
        namespace["tl"] = _Language(
            language, {"range": self.sample_unrolled_range, "static_range": self.sample_static_range}
        )


class _Language:
    """A module with some names replaced."""

    def __init__(self, module: Any, replaced: Mapping[str, Any]) -> None:
        self._module, self._replaced = module, replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced[name] if name in self._replaced else getattr(self._module, name)


@contextmanager
def count_into(tally: Tally) -> Iterator[None]:
    """Within the context, everything that the interpreter does is counted, and an access out of bounds is an error."""
    plain_reduce = interpreter.ReduceOps.apply

    def dot(a: Any, b: Any, d: Any, *rest: Any) -> Any:
        (m, k), n = a.data.shape[-2:], b.data.shape[-1]
        bits = a.get_element_ty().primitive_bitwidth
        tally.dots[{8: "8", 16: "16"}.get(bits, "fp32")] += tally.weight * 2.0 * m * n * k
        tally.tile = max(tally.tile, m * n)
        return tally.drawn.draw_product(d)

    def count_results(plain: Callable[..., Any]) -> Callable[..., Any]:
        def apply(*args: Any) -> Any:
            result = plain(*args)
            tally.count_result(result, args[-1] in _SPECIAL or hasattr(args[-1], "is_special"))
            return result

        return apply

    def reduce(self: Any, value: Any) -> Any:
        if not isinstance(value, tuple):  # a single operand comes back here as a tuple of one
            tally.total["reductions"] += tally.weight
            tally.total["elements"] += tally.weight * value.handle.data.size
        return plain_reduce(self, value)

    operations = {name: count_results(getattr(builder, name)) for name in ("binary_op", "unary_op", "ternary_op")}
    with (
        watch(tally.buffers, tally, tally.fill_loaded),
        replace_attributes(builder, **operations, create_dot=dot),
        replace_attributes(interpreter.ReduceOps, apply=reduce),
    ):
        yield


def sample_programs(grid: Program, drawn: InputValues | None = None, number: int = PROGRAMS) -> list[Program]:
    """A program of each of so many equal parts of the grid, or all."""
    count = math.prod(grid)
    drawn = drawn or InputValues(0)
    shares = (np.arange(number) + drawn.places.random(number)) / number
    places = range(count) if count <= number else (shares * count).astype(int).tolist()
    return [(i % grid[0], i // grid[0] % grid[1], i // (grid[0] * grid[1])) for i in places]


def run_sampled(tally: Tally, grid: Program, run: Callable[[list[Program]], None]) -> int:
    """Counts a few programs of a grid, and more where those differ; how many there were."""
    few, more = (sample_programs(grid, tally.drawn, number) for number in (PROGRAMS, MORE_PROGRAMS))
    moved = [0.0]
    for program in few:
        run([program])
        moved.append(tally.total["load_bytes"] + tally.total["store_bytes"])
    first, *others = np.diff(moved)
    if np.allclose(others, first, rtol=0.01):
        return len(few)
    more = [program for program in more if program not in few]
    run(more)
    return len(few) + len(more)
