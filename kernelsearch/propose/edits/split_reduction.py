"""Split-k and split-rows: one long accumulation is shared by SPLIT programs, a second kernel adds the partials.

Stage one stores each program's float32 accumulators in scratch, densely and by program, so that no mask is
needed; stage two has the grid of the original, sums the partials in a fixed order and runs the epilogue.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, replace

from kernelsearch.kernel.source import Function, Kernel, parse_function
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import COMBINE, Update, is_float32, starts_at_identity, update_of
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, finished

SPLITS = (2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Accumulator:
    """One accumulator of the loop: its update, the shape of its block, the statement that starts it."""

    update: Update
    shape: tuple[str, ...]
    initial: ast.stmt

    @property
    def numel(self) -> str:
        return " * ".join(self.shape) or "1"

    def index(self) -> str:
        """The offsets of the block's elements in its slot, row by row; empty for a scalar."""
        if len(self.shape) == 2:
            a, b = self.shape
            return f"tl.arange(0, {a})[:, None] * {tree.parenthesised(b)} + tl.arange(0, {b})[None, :]"
        return f"tl.arange(0, {self.shape[0]})" if self.shape else ""


class SplitReduction(FunctionEdit):
    name = "split_reduction"
    summary = "split-k / split-rows: partial accumulators in scratch, summed by a second kernel"

    def change(self, view: View) -> list[Change]:
        if set(view.function.params) & set(view.kernel.scratch):
            raise CannotApply("it is one stage of several already")
        if view.calls_helpers():
            raise CannotApply("it calls helper functions")
        steps = [name for names in view.kernel.launches.values() for name in names]
        if steps.count(view.function.name) > 1:
            raise CannotApply("it is launched more than once at a site")
        loop = _one_loop(view)
        free = [a for a in (0, 1, 2) if a not in view.axes]
        if not free:
            raise CannotApply("all three grid axes are in use")
        return [_Split(view, loop, free[0]).change()]


def _one_loop(view: View) -> ast.For:
    found = tree.loops(view.body)
    if len(found) != 1 or found[0] not in view.body:
        raise CannotApply("it has not exactly one loop that is not nested")
    if tree.range_of(found[0]) is None or tree.called(found[0].iter) == "tl.static_range":
        raise CannotApply("the loop does not run over a range")
    if any(isinstance(s, (ast.While, ast.Return, ast.If)) for s in tree.all_statements(view.body)):
        raise CannotApply("it has branches")
    return found[0]


class _Split:
    def __init__(self, view: View, loop: ast.For, axis: int) -> None:
        self.view, self.loop, self.axis = view, loop, axis
        at = view.body.index(loop)
        self.before, self.after = view.body[:at], view.body[at + 1 :]
        if any(tree.calls(s, "store", "atomic_add") for s in [*self.before, loop]):
            raise CannotApply("it stores before the loop is over")
        if set(view.function.params) & tree.writes(view.body):
            raise CannotApply("it assigns to a parameter")
        self.accumulators = self._accumulators()

    # ------------------------------------------------------------ what the loop carries

    def _accumulators(self) -> list[Accumulator]:
        found = []
        for name in self._carried():
            stmts = [s for s in self.loop.body if name in tree.writes(s)]
            update = update_of(stmts[0]) if len(stmts) == 1 else None
            if update is None:
                raise CannotApply(f"{name} is not a plain accumulator of the loop")
            if name in tree.reads([s for s in self.loop.body if s is not stmts[0]]):
                raise CannotApply(f"the loop reads its accumulator {name}")
            starts = [s for s in self.before if name in tree.writes(s)]
            pair = tree.assignment(starts[-1]) if starts else None
            shape = self.view.shapes.names.get(name) if name not in tree.writes(self.after) else None
            shape = self.view.shapes.of(pair[1]) if pair and shape is None else shape
            neutral = pair is not None and starts_at_identity(pair[1], update.kind) and is_float32(pair[1])
            if len(starts) != 1 or not neutral:
                raise CannotApply(f"{name} does not start as a float32 identity")
            if shape is None or len(shape) > 2 or not self._static(shape):
                raise CannotApply(f"the shape of {name} is not known before the launch")
            found.append(Accumulator(update, shape, starts[0]))
        if not found:
            raise CannotApply("the loop accumulates nothing")
        return found

    def _static(self, shape: tuple[str, ...]) -> bool:
        return all(tree.reads(tree.expression(d)) <= set(self.view.function.constexprs) for d in shape)

    def _carried(self) -> list[str]:
        """Names that an iteration takes over from the one before it, or that are read after the loop."""
        written: set[str] = set()
        carried: dict[str, None] = {}
        inside = tree.writes(self.loop.body)
        for stmt in self.loop.body:
            for name in sorted(tree.reads(stmt) & inside - written):
                carried[name] = None
            written |= tree.writes(stmt)
        seen: set[str] = set()
        for stmt in self.after:
            for name in sorted((tree.reads(stmt) - seen) & inside):
                carried[name] = None
            seen |= tree.writes(stmt)
        return list(carried)

    # ------------------------------------------------------------ the two stages

    def change(self) -> Change:
        view, kernel = self.view, self.view.kernel
        split = view.fresh("SPLIT")
        pointers = {a.update.name: view.fresh(f"{a.update.name}_partial_ptr") for a in self.accumulators}
        name, first = view.function.name, view.fresh(f"{view.function.name}_partial")
        params = [*pointers.values(), f"{split}: tl.constexpr"]
        one_node = copy.deepcopy(view.node)
        one_node.name = first
        one = parse_function(tree.rebuilt(one_node, self._stage_one(split, pointers), params))
        two = parse_function(tree.rebuilt(view.node, self._stage_two(split, pointers), params))
        functions = []
        for f in kernel.functions:
            functions += [_no_calls(one), _no_calls(two)] if f.name == name else [f]
        axes = list(view.grid)
        axes[self.axis] = split
        programs = " * ".join([split, *(tree.parenthesised(view.grid[a]) for a in view.axes)])
        scratch = {pointers[a.update.name]: ("float32", f"({programs}, {a.numel})") for a in self.accumulators}
        args = dict(kernel.args)
        if name in args:
            args[first] = args[name]
        new = kernel.changed(
            functions=tuple(functions),
            grid={**kernel.grid, first: f"({', '.join(axes)})"},
            args=args,
            scratch={**kernel.scratch, **scratch},
            launches=_launches(kernel, name, first),
        )
        whole = finished(new, view.task, {split: SPLITS}, {split: 4}, kernel)
        why = f"{split} programs share each accumulation, so that few large outputs still fill the device."
        return Change(whole, why)

    def _slots(self, split: str, pointer: str, acc: Accumulator) -> str:
        axes = self.view.axes
        programs = " * ".join(f"tl.num_programs({a})" for a in axes) or "1"
        program = "0"
        for a in reversed(axes):
            rest = "" if program == "0" else f" + tl.num_programs({a}) * ({program})"
            program = f"tl.program_id({a}){rest}"
        slot = f"({split} * ({programs}) + {program}).to(tl.int64)"
        index = acc.index()
        address = f"{pointer} + {slot} * ({acc.numel})"
        return f"{address} + ({index})" if index else address

    def _stage_one(self, split: str, pointers: dict[str, str]) -> list[ast.stmt]:
        view = self.view
        part, share, begin = view.fresh("part"), view.fresh("share"), view.fresh("begin")
        bounds = tree.range_of(self.loop)
        assert bounds is not None
        low, high, step = (tree.text_of(b) for b in bounds)
        length = high if low == "0" else f"{high} - ({low})"
        head = f"{part} = tl.program_id({self.axis})\n"
        head += f"{share} = tl.cdiv(tl.cdiv({length}, {step}), {split}) * {tree.parenthesised(step)}\n"
        head += f"{begin} = {part} * {share}\n" if low == "0" else f"{begin} = {low} + {part} * {share}\n"
        loop = copy.deepcopy(self.loop)
        rest = map(tree.text_of, tree.loop_options(loop))
        iterator = [begin, f"tl.minimum({begin} + {share}, {high})", step, *rest]
        loop.iter = tree.expression(f"{tree.called(loop.iter)}({', '.join(iterator)})")
        needed = tree.reads([*self.loop.body, self.loop.iter]) | {a.update.name for a in self.accumulators}
        stores = "".join(
            f"tl.store({self._slots(part, pointers[a.update.name], a)}, {a.update.name})\n" for a in self.accumulators
        )
        return [*sliced(self.before, needed), *tree.statements(head), loop, *tree.statements(stores)]

    def _stage_two(self, split: str, pointers: dict[str, str]) -> list[ast.stmt]:
        part = self.view.fresh("part")
        text = f"for {part} in range({split}):\n"
        for a in self.accumulators:
            load = f"tl.load({self._slots(part, pointers[a.update.name], a)})"
            text += f"    {a.update.name} = {COMBINE[a.update.kind].format(a=a.update.name, b=load)}\n"
        needed = tree.reads(self.after) | {a.update.name for a in self.accumulators}
        return [*sliced(self.before, needed), *tree.statements(text), *self.after]


def sliced(body: list[ast.stmt], needed: set[str]) -> list[ast.stmt]:
    """The statements of a straight body that the needed names depend on."""
    needed, kept = set(needed), []
    for stmt in reversed(body):
        if tree.writes(stmt) & needed or not tree.writes(stmt):
            kept.append(stmt)
            needed |= tree.reads(stmt)
    return kept[::-1]


def _launches(kernel: Kernel, name: str, first: str) -> dict[str, tuple[str, ...]]:
    """The kernel's launches with stage one before the function; a function bears the name of its site."""
    for site, steps in kernel.launches.items():
        if name in steps:
            at = steps.index(name)
            return {**kernel.launches, site: (*steps[:at], first, *steps[at:])}
    return {**kernel.launches, name: (first, name)}


def _no_calls(function: Function) -> Function:
    return replace(function, calls=frozenset())
