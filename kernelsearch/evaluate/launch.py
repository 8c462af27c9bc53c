"""Evaluates one launch of a kernel: the programs of its grid chunk by chunk, all programs of a chunk together.

`act` says for each program of a chunk whether it is on, None if all are. A loop with other bounds for each program runs
until the last is done, and those that are done keep their values; an `if` that programs take differently runs both
regions. Programs that may wait for one another run one at a time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch

from kernelsearch.evaluate.arithmetic import dtype_of, where
from kernelsearch.evaluate.buffers import Storages
from kernelsearch.evaluate.faults import EndlessLoop, Unsupported
from kernelsearch.evaluate.memory import Memory, TileDescriptor, choose
from kernelsearch.evaluate.steps import State, Step, Value, build_step
from kernelsearch.evaluate.sums import Pair, add_up, take_here
from kernelsearch.ir.text import NAME, BasicBlock, Module, Operation

Tensor = torch.Tensor
Env = dict[str, Value]
LANES = 1 << 18
"""Lanes of the largest value of a chunk: more leave the processor's caches."""
ROW, ROW_LANES = 8, LANES // 16
"""Programs along a grid's first axis, and lanes of these, from which a chunk stays in a row of it, where addresses are
evenly spaced: many chunks of fewer lanes take longer than addresses that are not."""
ENDS = frozenset("scf.yield tt.reduce.return tt.scan.return tt.map_elementwise.return scf.condition tt.return".split())
_STORES = frozenset(
    "tt.store tt.atomic_rmw tt.atomic_cas tt.descriptor_store tt.descriptor_scatter tt.descriptor_reduce".split()
)
_LOADS = frozenset("tt.load tt.descriptor_load tt.descriptor_gather".split())
_CONTROL = frozenset("scf.for scf.while scf.if tt.call".split())


class CompiledKernel:
    """A module with the step of each operation, for any number of launches. Raises Unsupported.

    marked gives the key under which a run notes that it met an operation, None for those that it need not note. choices
    are lines whose conditional expressions are noted. wrap may put something around the step of an operation.
    """

    def __init__(
        self,
        module: Module,
        marked: Callable[[Operation], Hashable] = lambda op: None,
        choices: frozenset[int] = frozenset(),
        wrap: Callable[[Operation, Step], Step] = lambda op, step: step,
    ) -> None:
        self.module, self.choices = module, choices
        self.steps: dict[Operation, Step] = {}
        for func in module.functions.values():
            for op in func.walk():
                key = marked(op)
                if key is not None:
                    self.steps[op] = _note(key)
                elif op.name == "arith.select" and op.line in choices and not op.types[-1].shape:
                    self.steps[op] = _note_choice(op)
                elif op.name not in ENDS | _CONTROL | {"tt.func", "cf.br", "cf.cond_br"}:
                    self.steps[op] = wrap(op, build_step(op))
        self.stored, self.reloads = _find_stored(module.kernel)
        every = [op for func in module.functions.values() for op in func.walk()]
        self.casts = any(op.name == "tt.int_to_ptr" for op in every)
        self.updates = any(op.name.startswith("tt.atomic") or op.name == "tt.descriptor_reduce" for op in every)
        self.waits = any(map(_may_wait, module.functions.values()))
        self.lanes = max((math.prod(kind.shape) for op in every for kind in op.types), default=1)


class GridRun:
    """One launch of a compiled module: arguments in the order of its parameters, and a grid.

    An argument is a number, the address of a tensor in these buffers, or a TileDescriptor. order gives the programs of
    the grid: `forward`, `in turn` (one by one behind atomic operations), `reversed` or `shuffled`.
    """

    def __init__(
        self,
        compiled: CompiledKernel,
        buffers: Storages,
        args: Sequence[Any],
        grid: tuple[int, int, int],
        order: str = "forward",
        undefined: bool = False,
    ) -> None:
        self.compiled, self.grid, self.memory = compiled, grid, Memory(buffers, undefined)
        self.order, self.buffers = order, buffers
        buffers.grid, buffers.casts, self.args = grid, compiled.casts, args
        buffers.phase = 0 if compiled.reloads else None
        buffers.ordered = torch.zeros(math.prod(grid) + 1 if compiled.updates else 1, dtype=torch.bool)
        self.ids: list[Tensor] = []
        self.met: set[Hashable] = set()
        """The keys of marked operations that were met, and (line, which side) of noted conditional expressions."""
        self._outer: Env = {}
        for name, value in zip(compiled.module.kernel.operands, args, strict=True):
            pointer = value.pointer if isinstance(value, TileDescriptor) else value
            if name in compiled.stored and pointer.dtype == torch.int64:
                number = buffers.find(int(pointer))
                if number is not None:
                    buffers.buffers[number].stored = True

    def run(self) -> None:
        """Evaluates all programs. Raises Fault, Unsupported."""
        for linear in self._split_grid():
            self.run_chunk(linear)

    def run_chunk(self, linear: Tensor) -> None:
        """Evaluates these programs of the grid together."""
        x, y, _ = self.grid
        self.buffers.programs, self.memory.count = linear + 1, len(linear)
        self.ids = [_merge(linear % x), _merge(linear // x % y), _merge(linear // (x * y))]
        self._call(self.compiled.module.kernel, list(self.args), None)

    def _split_grid(self) -> Iterator[Tensor]:
        """The programs of each chunk, in order."""
        x, y, z = self.grid
        total, size = x * y * z, 1 if self.compiled.waits else max(1, LANES // self.compiled.lanes)
        if self.order != "forward":
            size = 1 if self.compiled.updates else size  # behind an atomic operation only the answer shows a race
            every = torch.arange(total, dtype=torch.int32)
            if self.order == "reversed":
                every = every.flip(0)
            if self.order == "shuffled":
                every = torch.randperm(total, generator=torch.Generator().manual_seed(total)).to(torch.int32)
            yield from every.split(size)
            return
        row = x if x >= ROW and x * self.compiled.lanes >= ROW_LANES else total
        for first in range(0, total, row):
            for start in range(first, first + row, size):
                yield torch.arange(start, min(start + size, first + row), dtype=torch.int32)

    # ------------------------------------------------------------ blocks

    def _call(self, func: Operation, args: list[Value], act: Tensor | None) -> list[Value]:
        """Runs a function; gives what it returns."""
        return self._run_blocks(func.regions[0], dict(zip(func.operands, args, strict=True)), act)

    def _run_blocks(self, blocks: list[BasicBlock], env: Env, act: Tensor | None) -> list[Value]:
        """Runs blocks in order, as branches go forward only; gives what the last ones return."""
        if len(blocks) == 1:
            return self._run(blocks[0].ops, env, act)
        waiting: dict[str, Tensor] = {blocks[0].label: torch.ones(1, dtype=torch.bool) if act is None else act}
        returned: list[Value] | None = None
        for block in blocks:
            on = waiting.get(block.label)
            if on is None or not bool(on.any()):
                continue
            *body, last = block.ops
            self._run(body, env, None if bool(on.all()) else on)
            if last.name in ENDS:
                values = [env[n] for n in last.operands]
                returned = values if returned is None else _merge_values(on, values, returned)
                continue
            self._branch(blocks, last, env, on, waiting)
        return returned or []

    @staticmethod
    def _branch(blocks: list[BasicBlock], last: Operation, env: Env, on: Tensor, waiting: dict[str, Tensor]) -> None:
        names = re.findall(r"(\^\w+)(?:\(([^:)]*))?", last.text)
        condition = env[last.operands[0]] if last.name == "cf.cond_br" else torch.ones(1, dtype=torch.bool)
        for (label, passed), taken in zip(names, (condition, ~condition), strict=False):
            now, before = on & taken, waiting.get(label)
            target = next(b for b in blocks if b.label == label)
            for name, source in zip(target.args, NAME.findall(passed), strict=True):
                env[name] = env[source] if before is None else choose(now, env[source], env[name])
            waiting[label] = now if before is None else before | now

    def _run(self, ops: list[Operation], env: Env, act: Tensor | None) -> list[Value]:
        """Evaluates operations up to the one that ends their region, whose operands' values it gives."""
        steps = self.compiled.steps
        for op in ops:
            step = steps.get(op)
            if step is None:
                if op.name in ENDS:
                    return [env[name] for name in op.operands]
                made = self._control(op, env, act)
            else:
                self._outer = env
                made = step(self, [env[name] for name in op.operands], act)
            if type(made) is list:
                env.update(zip(op.results, made, strict=False))
            else:
                env[op.results[0]] = made
        return []

    def combine(self, op: Operation, left: list[Tensor], right: list[Tensor]) -> list[Tensor]:
        """What the region of a reduction or a scan makes of two elements."""
        block, outer = op.regions[0][-1], self._outer
        axes = (1,) * (left[0].dim() - 1)
        captured = {n for inner in block.ops for n in inner.operands if n in outer and n not in block.args}
        numbers = {n: add_up(self._settle(op, outer[n])).reshape(-1, *axes) for n in captured}
        made = self._run(block.ops, {**numbers, **dict(zip(block.args, left + right, strict=True))}, None)
        self._outer = outer
        return made

    def apply(self, op: Operation, args: list[Tensor], lanes: int) -> list[Value]:
        """What the region of `map_elementwise` makes of elements, of so many for each program, as if each were one."""
        blocks, outer = op.regions[0], self._outer
        captured = {n: v for n, v in outer.items() if isinstance(v, Tensor) and v.dim() == 1}
        spread = {n: v if v.shape[0] == 1 else v.repeat_interleave(lanes) for n, v in captured.items()}
        made = self._run_blocks(blocks, {**spread, **dict(zip(blocks[0].args, args, strict=True))}, None)
        self._outer = outer
        return made

    # ------------------------------------------------------------ control flow

    def _control(self, op: Operation, env: Env, act: Tensor | None) -> list[Value]:
        if op.name == "scf.for":
            return self._loop(op, env, act)
        if op.name == "scf.while":
            return self._loop_while(op, env, act)
        if op.name == "scf.if":
            return self._choose_region(op, env, act)
        if op.name == "tt.call":
            called = re.search(r"@([\w$.\"<>, \[\]-]+?)\(", op.text)
            func = self.compiled.module.functions.get(called[1] if called else "")
            if func is not None:
                return self._call(func, [env[n] for n in op.operands], act)
        raise Unsupported(op.name)

    def _loop(self, op: Operation, env: Env, act: Tensor | None) -> list[Value]:
        counter, first, last, step, *carried = op.operands
        body, values = op.regions[0][0].ops, [env[n] for n in carried[1::2]]
        index, last, step = (self._settle(op, env[name]) for name in (first, last, step))
        while True:
            on = index < last if act is None else (index < last) & act
            if not bool(on.any()):
                return values
            inside = None if bool(on.all()) else on
            env[counter] = index
            env.update(zip(carried[::2], values, strict=True))
            made = self._run(body, env, inside)
            values = made if inside is None else _merge_values(on, made, values)
            index = index + step

    def _settle(self, op: Operation, value: Value) -> Value:
        """The value as it is, where something is decided by it."""
        if type(value) is Pair:
            self.buffers.note_place(op)
        return take_here(value)

    def _loop_while(self, op: Operation, env: Env, act: Tensor | None) -> list[Value]:
        names = NAME.findall(op.text.partition(")")[0])
        before, after = op.regions[0][0].ops, op.regions[1][-1]
        values, results = [env[n] for n in names[1::2]], None
        on, turns = act, _Turns(self.buffers)
        while True:
            env.update(zip(names[::2], values, strict=True))
            condition, *passed = self._run(before, env, on)
            results = passed if results is None or on is None else _merge_values(on, passed, results)
            on = condition if on is None else on & condition
            if not bool(on.any()):
                turns.end()
                return results
            turns.check(op, values, on)
            env.update(zip(after.args, passed, strict=True))
            made = self._run(after.ops, env, None if bool(on.all()) else on)
            values = made if bool(on.all()) else _merge_values(on, made, values)

    def _choose_region(self, op: Operation, env: Env, act: Tensor | None) -> list[Value]:
        condition = env[op.operands[0]]
        taken = condition if act is None else condition & act
        other = ~condition if act is None else ~condition & act
        sides = []
        for side, on, blocks in zip((True, False), (taken, other), op.regions, strict=False):
            if bool(on.any()):
                if op.line in self.compiled.choices:
                    self.met.add((op.line, side))
                sides.append(self._run(blocks[0].ops, env, None if bool(on.all()) else on))
        if not op.results:
            return []
        return sides[0] if len(sides) == 1 else _merge_values(taken, *sides)


class _Turns:
    """Sees a `while` loop whose turn changes neither a value nor memory: so will every later turn.

    The state is kept after 1, 2, 4, ... turns and compared with the next, so that long loops cost little more.
    """

    def __init__(self, buffers: Storages) -> None:
        self.buffers, self.number = buffers, 0
        self.kept: tuple[int, list[Value], Tensor] | None = None

    def end(self) -> None:
        """Stops watching."""
        self.buffers.watchers -= self.kept is not None
        self.kept = None

    def check(self, op: Operation, values: list[Value], on: Tensor) -> None:
        """Looks at the state before a turn. Raises EndlessLoop."""
        kept = self.kept
        self.end()
        self.number += 1
        if kept is not None and kept[0] == self.buffers.changes and torch.equal(kept[2], on):
            pairs = zip(kept[1], values, strict=True)
            if all(_is_same(a, b, on) for a, b in pairs):
                programs = self.buffers.programs
                program = self.buffers.name_program(int(programs[on.expand(len(programs))][0]))
                raise EndlessLoop(
                    f"a `while` loop never ends in program {program}: a turn of it changes nothing; if it waits for "
                    "another program, it cannot be judged without a GPU, because programs run one after another",
                    op.line,
                )
        if self.number & (self.number - 1) == 0:
            self.buffers.watchers += 1
            self.kept = self.buffers.changes, values, on


def _is_same(a: Value, b: Value, on: Tensor) -> bool:
    a, b = add_up(take_here(a)), add_up(take_here(b))
    differs = (a != b) & ~((a != a) & (b != b))
    return not bool((differs & on.reshape(-1, *(1,) * (differs.dim() - 1))).any())


def _note(key: Hashable) -> Step:
    def note(run: State, values: list[Value], act: Tensor | None) -> list[Value]:
        run.met.add(key)
        return []

    return note


def _note_choice(op: Operation) -> Step:
    def choose(run: State, values: list[Value], act: Tensor | None) -> Tensor:
        condition = add_up(values[0])
        for side, on in ((True, condition), (False, ~condition)):
            if bool((on if act is None else on & act).any()):
                run.met.add((op.line, side))
        return where(condition, *map(add_up, values[1:]))

    return choose


def _merge(ids: Tensor) -> Tensor:
    return ids[:1] if bool((ids == ids[0]).all()) else ids


def _merge_values(on: Tensor, new: Sequence[Value], old: Sequence[Value]) -> list[Value]:
    return [a if a is b else choose(on, a, b) for a, b in zip(new, old, strict=True)]


def _may_wait(op: Operation, inside: bool = False) -> bool:
    """Whether a program may wait for another: an atomic operation, or a volatile load, within a `while`."""
    inside = inside or op.name == "scf.while"
    waits = op.name.startswith("tt.atomic") or (op.name == "tt.load" and "isVolatile" in op.text)
    inner = (i for blocks in op.regions for block in blocks for i in block.ops)
    return (inside and waits) or any(_may_wait(i, inside) for i in inner)


def make_scalar(value: Any, element: str) -> Tensor:
    """A number as the value of a parameter."""
    dtype = dtype_of(element)
    if dtype == torch.int64 and value >= 2**63:
        value -= 2**64
    return torch.tensor([value], dtype=dtype)


def _find_stored(kernel: Operation) -> tuple[frozenset[str], bool]:
    """The parameters through which a kernel may store, and whether it may load through these: pointers that meet in an
    operation are one class.
    """
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while (up := parent.setdefault(name, name)) != name:
            name = up
        return name

    stored: list[str] = []
    loaded: list[str] = []
    for op, around in _walk_with_parents(kernel):
        if op.name == "tt.call":
            return frozenset(kernel.operands), True
        if op.name in _STORES:
            stored.append(op.operands[0])
        elif op.name in _LOADS:
            loaded.append(op.operands[0])
        elif op.name in ("tt.addptr", "tt.make_tensor_descriptor"):
            parent[root(op.results[0])] = root(op.operands[0])
        elif "!tt.ptr" in op.text and op.name not in ("tt.func", "tt.load"):
            for name in op.results + op.operands:
                parent[root(name)] = root((op.results + op.operands)[0])
        if op.name in ("scf.yield", "scf.condition") and "ptr" in op.text and around.results:
            for name in op.operands:  # a loop's values are one class, coarsely
                parent[root(name)] = root(around.results[0])
    roots = {root(name) for name in stored}
    if not roots <= {root(name) for name in kernel.operands}:  # an address that was computed as a number
        return frozenset(kernel.operands), True
    return frozenset(name for name in kernel.operands if root(name) in roots), any(root(n) in roots for n in loaded)


def _walk_with_parents(op: Operation) -> Iterator[tuple[Operation, Operation]]:
    for inner in (i for blocks in op.regions for block in blocks for i in block.ops):
        yield inner, op
        yield from _walk_with_parents(inner)
