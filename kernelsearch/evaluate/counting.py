"""Counts the work of single programs of a launch, on values that are drawn as they are read.

Loops are sampled: of a long loop the last iteration, which is often a partial one, and two that stand for all others.
A secret seed draws these and the programs' places in their grid: the same for all candidates, so that the draw is no
difference between them, and none can arrange to be idle where it is observed. The values of skipped work are missing,
so results mean nothing; addresses, sizes and trip counts are those of the real grid.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import torch

from kernelsearch.evaluate.accesses import find_block
from kernelsearch.evaluate.arithmetic import BINARY, BITS, UNARY, dtype_of
from kernelsearch.evaluate.buffers import Storage, Storages
from kernelsearch.evaluate.launch import CompiledKernel, Env, GridRun
from kernelsearch.evaluate.memory import Memory, find_tile
from kernelsearch.evaluate.steps import Step, Value
from kernelsearch.evaluate.sums import add_up
from kernelsearch.ir.text import Operation

Tensor = torch.Tensor
SAMPLED_ITERATIONS = 3
PROGRAMS, MORE_PROGRAMS = 2, 30
"""Programs that are counted; MORE_PROGRAMS too where those do not move as many bytes, as where lengths are data, and
where the kernel has branches."""
MOST_LANES = 1 << 24
"""Lanes of the programs that run all together."""
POOL = 1 << 14
_MIX = 0x9E3779B97F4A7C15 - (1 << 64)  # Fibonacci hashing (Knuth, The Art of Computer Programming 3, 6.4)
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_SPECIAL = frozenset(
    "math.exp math.exp2 math.log math.log2 math.sqrt math.rsqrt math.sin math.cos math.tanh tt.precise_sqrt "
    "arith.divf tt.precise_divf tt.extern_elementwise".split()
)
_ELEMENTWISE = frozenset({*BINARY, *UNARY, "arith.select", "math.fma", "tt.clampf", "tt.extern_elementwise"})
_ACCESSES = {
    "tt.load": "load", "tt.store": "store", "tt.atomic_rmw": "atomic", "tt.atomic_cas": "atomic",
    "tt.descriptor_load": "load", "tt.descriptor_store": "store", "tt.descriptor_reduce": "atomic",
    "tt.descriptor_gather": "load", "tt.descriptor_scatter": "store",
}  # fmt: skip


_ROWS = ("tt.descriptor_gather", "tt.descriptor_scatter")


class DrawnValues:
    """Values of inputs by the address of a storage: a pool of elements, and whether a place picks by hash or in turn.

    Inputs of timed shapes are too large to fill, and zeros would let a kernel that does less where it reads zeros look
    faster than it is. So an element that nothing has stored to (all bits zero) is one of its pool.
    """

    def __init__(self, seed: int) -> None:
        self.rng, self.places = np.random.default_rng(seed), np.random.default_rng([seed, 1])
        self.first_share = self.places.random()
        self.pools: dict[int, tuple[Tensor, bool]] = {}
        self.salt = int(self.rng.integers(1, 1 << 62))
        self.normal = torch.from_numpy(self.rng.standard_normal(POOL).clip(-6, 6))
        self._products = 0

    def add(self, tensor: Tensor, values: Tensor, hashed: bool) -> None:
        """Gives an input the values of a pool: each place picks one by its hash, or all repeat in turn."""
        self.pools[tensor.untyped_storage().data_ptr()] = values.contiguous().view(BITS[tensor.element_size()]), hashed

    def start_again(self) -> DrawnValues:
        """The same values with loops sampled in another way, for a run that is not counted."""
        other = copy(self)
        other.first_share = 0.0
        return other

    def fill(self, buffer: Storage, index: Tensor, loaded: Tensor) -> Tensor:
        """The loaded elements at these places of a buffer, with drawn ones in place of zeros."""
        pool, hashed = self.pools.get(buffer.tensor.data_ptr(), (loaded[:0], False))
        if not pool.numel() or pool.element_size() != loaded.element_size():
            return loaded
        at = ((index + self.salt) * _MIX >> (64 - 14)) & (POOL - 1) if hashed else index % pool.numel()
        bits = loaded.view(pool.dtype)
        return torch.where(bits == 0, pool[at], bits).view(loaded.dtype)

    def draw_product(self, c: Tensor, shape: tuple[int, ...]) -> Tensor:
        """What a matrix product that is only counted adds to c."""
        self._products += 1
        noise = (8.0 * self.normal.roll(37 * self._products)).repeat(-(-math.prod(shape) // POOL))
        return c + noise[: math.prod(shape)].reshape(1, *shape).to(c.dtype)

    def choose_turns(self, turns: int, seen: int) -> list[int]:
        """Turns that stand for all of a loop that was sampled so often before.

        Multiples of the golden ratio, modulo 1, spread evenly however many are taken (Knuth, 6.4), so that the mean
        over all programs is nearly that over all turns.
        """
        taken = SAMPLED_ITERATIONS - 1
        shares = (self.first_share + (seen * taken + np.arange(taken)) * _GOLDEN) % 1.0
        return sorted((shares * turns).astype(int).tolist())

    def choose_programs(self, count: int, number: int) -> list[int]:
        """A program of each of so many equal parts of a grid, or all."""
        shares = (np.arange(number) + self.places.random(number)) / number
        return [*range(count)] if count <= number else (shares * count).astype(int).tolist()


class Tally:
    """Running totals of the sampled programs; weight is how many real events one sampled event stands for."""

    def __init__(self) -> None:
        self.weight, self.tile = 1.0, 0
        self.total: dict[str, float] = defaultdict(float)
        self.by_buffer: dict[tuple[int | None, str], float] = defaultdict(float)
        self.dots: dict[str, float] = defaultdict(float)

    @property
    def moved(self) -> float:
        """The bytes that were loaded and stored."""
        return self.total["load_bytes"] + self.total["store_bytes"]

    def add(self, what: str, number: float = 1.0) -> None:
        """Adds so many events."""
        self.total[what] += self.weight * number

    def access(self, kind: str, owner: int | None, lanes: float, width: int) -> None:
        """Adds an access of so many active lanes to a buffer."""
        self.add("atomics", lanes * (kind == "atomic"))
        kind = "load" if kind == "load" else "store"
        self.add(f"{kind}_bytes", lanes * width)
        # An element that is stored and then loaded crosses the bus once; an update in place crosses it twice.
        if lanes and (kind == "store" or (owner, kind) in self.by_buffer or (owner, "store") not in self.by_buffer):
            self.by_buffer[owner, kind] += self.weight * lanes * width


class UnseenStorages(Storages):
    """Buffers of a launch whose accesses nobody judges, so that large ones stay untouched."""

    def see_load(self, *_: Any) -> None: ...

    def see_update(self, *_: Any) -> None: ...

    def store(self, op: Any, buffer: Storage, index: Tensor, by: Tensor, value: Tensor, width: int, *_: Any) -> None:
        """Stores values, given as integers."""
        flat = buffer.view(BITS[width])
        self.changes += bool(self.watchers) and not torch.equal(flat.index_select(0, index), value)
        flat.scatter_(0, index, value)


class _DrawnMemory(Memory):
    def __init__(self, buffers: Storages, drawn: DrawnValues) -> None:
        super().__init__(buffers)
        self.drawn = drawn

    def _view(self, *_: Any) -> None: ...

    def _read(self, op: Operation, buffer: Storage, index: Tensor, *rest: Any) -> Tensor:
        return self.drawn.fill(buffer, index, super()._read(op, buffer, index, *rest))


class CountedRun(GridRun):
    """Runs single programs of a launch of a kernel that was compiled with `count_step`; tally has what they did."""

    def __init__(
        self,
        compiled: CompiledKernel,
        buffers: UnseenStorages,
        args: Sequence[Any],
        grid: tuple[int, int, int],
        drawn: DrawnValues,
    ) -> None:
        super().__init__(compiled, buffers, args, grid)
        self.memory, self.drawn, self.tally = _DrawnMemory(buffers, drawn), drawn, Tally()
        self._sampled: Counter[int] = Counter()

    def count(self) -> int:
        """Counts a few programs, and more where those differ or may branch; how many there were.

        Programs that draw their work by atomic operations run all together: one alone would do the work of all.
        """
        total, moved, done = math.prod(self.grid), [0.0], list[int]()
        if _shares_work(self.compiled) and total * self.compiled.lanes <= MOST_LANES:
            self.run_chunk(torch.arange(total, dtype=torch.int32))
            return total
        few, more = (self.drawn.choose_programs(total, number) for number in (PROGRAMS, MORE_PROGRAMS))
        for program in few:
            self.run_chunk(torch.tensor([program], dtype=torch.int32))
            moved.append(self.tally.moved)
            done.append(program)
        first, *others = np.diff(moved)
        alike = np.allclose(others, first, rtol=0.01) and not _branches(self.compiled)
        for program in () if alike else (p for p in more if p not in few):
            self.run_chunk(torch.tensor([program], dtype=torch.int32))
            done.append(program)
        return len(done)

    def count_active(self, act: Tensor | None) -> int:
        """How many programs do what is done now."""
        return self.memory.count if act is None else int(act.expand(self.memory.count).count_nonzero())

    def _loop(self, op: Operation, env: Env, act: Tensor | None) -> list[Value]:
        counter, first, last, step, *carried = op.operands
        values, kind = [env[n] for n in carried[1::2]], env[first].dtype
        if any(len(env[n].unique()) > 1 for n in (first, last, step)):
            return super()._loop(op, env, act)
        whole = range(*(int(add_up(env[n]).reshape(-1)[0]) for n in (first, last, step)))
        n, outer = len(whole), self.tally.weight
        if n <= SAMPLED_ITERATIONS:
            picks = [(index, 1.0) for index in whole]
        else:
            drawn = self.drawn.choose_turns(n - 1, self._sampled[id(op)])
            self._sampled[id(op)] += 1
            picks = [*((whole[i], (n - 1) / len(drawn)) for i in drawn), (whole[-1], 1.0)]
        self.tally.add("iterations", n * self.count_active(act))
        for index, stands_for in picks:
            self.tally.weight = outer * stands_for
            env[counter] = torch.tensor([index], dtype=kind)
            env.update(zip(carried[::2], values, strict=True))
            values = self._run(op.regions[0][0].ops, env, act)
        self.tally.weight = outer
        return values


def count_step(op: Operation, step: Step) -> Step:
    """The step of an operation, which also counts it in a CountedRun."""
    if op.name in _ACCESSES:
        return _count_access(op, step)
    if op.name in ("tt.dot", "tt.dot_scaled"):
        return _count_product(op)
    name = op.name
    if name in ("tt.reduce", "tt.scan", "tt.map_elementwise"):  # what combines two is done about once for each
        inner = [_find_kind(o) for block in op.regions[0] for o in block.ops]
        kinds = [kind for kind in inner if kind] or ["elements"]
        counted = [(kind, math.prod(op.types[0].shape)) for kind in kinds] + [("reductions", 1)] * (name == "tt.reduce")
    elif op.types and op.types[-1].shape and (kind := _find_kind(op)):
        counted = [(kind, math.prod(op.types[-1].shape))]
    else:
        return step

    def count(run: Any, values: list[Value], act: Tensor | None) -> Any:
        for what, number in counted:
            run.tally.add(what, number * run.count_active(act))
        return step(run, values, act)

    return count


def _find_kind(op: Operation) -> str:
    """What an operation that makes floats of floats counts as; empty for others."""
    if op.name not in _ELEMENTWISE or not dtype_of(op.types[-1].element).is_floating_point:
        return ""
    return "special" if op.name in _SPECIAL else "elements"


def _branches(compiled: CompiledKernel) -> bool:
    """Whether programs may do one thing or another, as where the first ones serve one tensor and the rest the next."""
    return any(op.name in ("scf.if", "cf.cond_br") for f in compiled.module.functions.values() for op in f.walk())


def _shares_work(compiled: CompiledKernel) -> bool:
    """Whether programs draw work in a `while` by atomic operations; a loop without accesses in its turns only waits."""
    loops = [op for func in compiled.module.functions.values() for op in func.walk() if op.name == "scf.while"]
    works = [
        any(o.name in _ACCESSES for block in op.regions[1] for inner in block.ops for o in inner.walk()) for op in loops
    ]
    return compiled.waits and all(works)


def find_lanes(op: Operation, values: list[Value]) -> tuple[Tensor, Tensor | None]:
    """The addresses of an access and its mask."""
    if op.name.startswith("tt.descriptor"):
        described, *rest = values
        at = rest[:2] if op.name in _ROWS else [v for v in rest if add_up(v).dim() == 1]
        addresses, mask = find_tile(described, at, find_block(op))
        return add_up(addresses), mask
    masked = {"tt.load": 1, "tt.store": 2, "tt.atomic_rmw": 2}.get(op.name, len(values))
    return add_up(values[0]), add_up(values[masked]) if len(values) > masked else None


def _count_access(op: Operation, step: Step) -> Step:
    kind, described = _ACCESSES[op.name], op.name.startswith("tt.descriptor")
    shape = find_block(op).shape if described else op.types[0].shape
    width = torch.empty((), dtype=dtype_of(op.types[0].element.removeprefix("*"))).element_size()

    def count(run: Any, values: list[Value], act: Tensor | None) -> Any:
        addresses, mask = find_lanes(op, values)
        mask, first = run.memory.mask_lanes(mask, act, len(shape)), addresses.reshape(-1)[:1]
        lanes = float(math.prod(shape) * run.memory.count)
        if mask is not None:
            lanes *= int(mask.count_nonzero()) / mask.numel()
            full = torch.broadcast_shapes(mask.shape, addresses.shape)
            first = addresses.expand(full)[mask.expand(full)][:1] if lanes else first[:0]
        run.tally.add("loads", run.count_active(act) * (kind == "load"))
        run.tally.access(kind, run.buffers.find(int(first)) if len(first) else None, lanes, width)
        run.tally.tile = max(run.tally.tile, math.prod(shape) if shape else 0)
        return step(run, values, act)

    return count


def _count_product(op: Operation) -> Step:
    left, result = op.types[0], op.types[-1]
    bits = 8 * torch.empty((), dtype=dtype_of(left.element)).element_size()
    kind, lanes = {8: "8", 16: "16"}.get(bits, "fp32"), math.prod(result.shape)

    def multiply(run: Any, values: list[Value], act: Tensor | None) -> Tensor:
        run.tally.dots[kind] += run.tally.weight * run.count_active(act) * 2.0 * lanes * left.shape[-1]
        run.tally.tile = max(run.tally.tile, math.prod(result.shape[-2:]))
        return run.drawn.draw_product(add_up(values[-1]), result.shape)

    return multiply
