"""Split-k and split-rows: SPLIT programs share one long accumulation, and a second kernel adds the partials.

Stage one stores each program's float32 accumulators in scratch, densely and by program, so it needs no mask.
Stage two has the grid of the original, sums the partials in a fixed order and runs the epilogue.
"""

from __future__ import annotations

import ast
import copy
import itertools
from dataclasses import dataclass, replace

from kernelsearch.kernel.source import Kernel, parse_function
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import COMBINE, is_identity, update_of
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View
from kernelsearch.propose.edits.base import Edit


@dataclass(frozen=True)
class Accumulator:
    """One accumulator of the loop: its name, the kind of its reduction, and the shape of its block."""

    name: str
    kind: str
    shape: tuple[str, ...]

    @property
    def numel(self) -> str:
        return " * ".join(self.shape) or "1"

    @property
    def index(self) -> str:
        """The offsets of the block's elements in its slot, row by row; empty for a scalar."""
        if len(self.shape) == 2:
            a, b = self.shape
            return f"tl.arange(0, {a})[:, None] * {tree.parenthesise(b)} + tl.arange(0, {b})[None, :]"
        return f"tl.arange(0, {self.shape[0]})" if self.shape else ""


class SplitReduction(Edit):
    summary = "split-k / split-rows: partial accumulators in scratch, summed by a second kernel"

    def change(self, view: View) -> Changes:
        if set(view.function.params) & set(view.kernel.scratch):
            raise NotApplicable("it is one stage of several already")
        if view.function.calls:
            raise NotApplicable("it calls helper functions")
        steps = [name for names in view.kernel.launches.values() for name in names]
        if steps.count(view.function.name) > 1:
            raise NotApplicable("it is launched more than once at a site")
        loop = _one_loop(view)
        free = [a for a in (0, 1, 2) if a not in view.axes]
        if not free:
            raise NotApplicable("all three grid axes are in use")
        yield _Split(view, loop, free[0]).change()


def _one_loop(view: View) -> ast.For:
    loops = tree.loops(view.body)
    if len(loops) != 1 or loops[0] not in view.body:
        raise NotApplicable("it does not have exactly one loop, outside of branches")
    if tree.range_of(loops[0]) is None or tree.callee(loops[0].iter) == "tl.static_range":
        raise NotApplicable("the loop does not run over a range")
    if any(isinstance(s, (ast.While, ast.Return, ast.If)) for s in tree.all_statements(view.body)):
        raise NotApplicable("it has branches")
    return loops[0]


class _Split:
    """The two stages of a function with one loop; axis is the free grid axis that stage one uses."""

    def __init__(self, view: View, loop: ast.For, axis: int) -> None:
        self.view, self.loop, self.axis = view, loop, axis
        at = view.body.index(loop)
        self.before, self.after = view.body[:at], view.body[at + 1 :]
        if any(tree.calls(s, "store", "atomic_add") for s in [*self.before, loop]):
            raise NotApplicable("it stores before the loop is over")
        if set(view.function.params) & tree.writes(view.body):
            raise NotApplicable("it assigns to a parameter")
        self.accumulators = [self._accumulator(name) for name in self._carried()]
        if not self.accumulators:
            raise NotApplicable("the loop accumulates nothing")
        self.split = view.fresh_name("SPLIT")
        self.pointers = {a.name: view.fresh_name(f"{a.name}_partial_ptr") for a in self.accumulators}

    # ------------------------------------------------------------ accumulators

    def _accumulator(self, name: str) -> Accumulator:
        writers = [s for s in self.loop.body if name in tree.writes(s)]
        update = update_of(writers[0]) if len(writers) == 1 else None
        if update is None:
            raise NotApplicable(f"{name} is not a plain accumulator of the loop")
        if name in tree.reads([s for s in self.loop.body if s is not writers[0]]):
            raise NotApplicable(f"the loop reads its accumulator {name}")
        starts = [s for s in self.before if name in tree.writes(s)]
        pair = tree.assignment(starts[-1]) if starts else None
        if pair is None or len(starts) != 1 or not is_identity(pair[1], update.kind):
            raise NotApplicable(f"{name} does not start as a float32 identity")
        shape = self.view.shapes.names.get(name) if name not in tree.writes(self.after) else None
        shape = self.view.shapes.of(pair[1]) if shape is None else shape
        constexprs = set(self.view.function.constexprs)
        if shape is None or len(shape) > 2 or not all(tree.reads(tree.expression(d)) <= constexprs for d in shape):
            raise NotApplicable(f"the shape of {name} is not known before the launch")
        return Accumulator(name, update.kind, shape)

    def _carried(self) -> list[str]:
        """Names that an iteration takes over from the one before it, or that are read after the loop."""
        inside = tree.writes(self.loop.body)
        carried: dict[str, None] = {}
        for body in (self.loop.body, self.after):
            written: set[str] = set()
            for stmt in body:
                carried |= dict.fromkeys(sorted(tree.reads(stmt) & inside - written))
                written |= tree.writes(stmt)
        return list(carried)

    # ------------------------------------------------------------ the two stages

    def change(self) -> Change:
        view, kernel, split = self.view, self.view.kernel, self.split
        name, first = view.function.name, view.fresh_name(f"{view.function.name}_partial")
        params = [*self.pointers.values(), f"{split}: tl.constexpr"]
        one_node = copy.deepcopy(view.node)
        one_node.name = first
        patches = [tree.rebuild(one_node, self._stage_one()), tree.rebuild(view.node, self._stage_two())]
        for patch, param in itertools.product(patches, params):
            patch.add_param(param)
        stages = [replace(parse_function(patch.text()), calls=frozenset()) for patch in patches]
        functions = [stage for f in kernel.functions for stage in (stages if f.name == name else [f])]
        axes = list(view.grid)
        axes[self.axis] = split
        programs = " * ".join([split, *(tree.parenthesise(view.grid[a]) for a in view.axes)])
        scratch = {self.pointers[a.name]: ("float32", f"({programs}, {a.numel})") for a in self.accumulators}
        new = kernel.with_changes(
            functions=tuple(functions),
            grid={**kernel.grid, first: f"({', '.join(axes)})"},
            args={**kernel.args, **({first: kernel.args[name]} if name in kernel.args else {})},
            scratch={**kernel.scratch, **scratch},
            launches=_launches(kernel, name, first),
        )
        why = f"{split} programs share each accumulation, so that few large outputs still fill the device."
        return Change(view.complete(new, {split: ((2, 4, 8, 16, 32), 4)}), why)

    def _slots(self, part: str, acc: Accumulator) -> str:
        """The address of a part's slot in an accumulator's scratch."""
        programs, program = [], "0"
        for a in reversed(self.view.axes):
            programs.insert(0, f"tl.num_programs({a})")
            program = f"tl.program_id({a})" + ("" if program == "0" else f" + tl.num_programs({a}) * ({program})")
        slot = f"({part} * ({' * '.join(programs) or '1'}) + {program}).to(tl.int64)"
        address = f"{self.pointers[acc.name]} + {slot} * ({acc.numel})"
        return f"{address} + ({acc.index})" if acc.index else address

    def _stage_one(self) -> list[ast.stmt]:
        """The body that runs a share of the loop's iterations and stores the accumulators."""
        part, share, begin = map(self.view.fresh_name, ("part", "share", "begin"))
        low, high, step = map(tree.text_of, tree.range_of(self.loop))  # type: ignore[arg-type]
        length = high if low == "0" else f"{high} - ({low})"
        head = f"{part} = tl.program_id({self.axis})\n"
        head += f"{share} = tl.cdiv(tl.cdiv({length}, {step}), {self.split}) * {tree.parenthesise(step)}\n"
        head += f"{begin} = {part} * {share}\n" if low == "0" else f"{begin} = {low} + {part} * {share}\n"
        loop = tree.with_range(self.loop, begin, f"tl.minimum({begin} + {share}, {high})", step)
        stores = "".join(f"tl.store({self._slots(part, a)}, {a.name})\n" for a in self.accumulators)
        before = self._needed_before([*self.loop.body, self.loop.iter])
        return [*before, *tree.statements(head), loop, *tree.statements(stores)]

    def _stage_two(self) -> list[ast.stmt]:
        """The body that adds the parts and goes on as after the loop."""
        part = self.view.fresh_name("part")
        text = f"for {part} in range({self.split}):\n"
        for a in self.accumulators:
            load = f"tl.load({self._slots(part, a)})"
            text += f"    {a.name} = {COMBINE[a.kind].format(a=a.name, b=load)}\n"
        return [*self._needed_before(self.after), *tree.statements(text), *self.after]

    def _needed_before(self, body: list[ast.AST]) -> list[ast.stmt]:
        """The statements before the loop that the body and the accumulators depend on."""
        needed = tree.reads(body) | set(self.pointers)
        statements: list[ast.stmt] = []
        for stmt in reversed(self.before):
            if tree.writes(stmt) & needed or not tree.writes(stmt):
                statements.insert(0, stmt)
                needed |= tree.reads(stmt)
        return statements


def _launches(kernel: Kernel, name: str, first: str) -> dict[str, tuple[str, ...]]:
    """The kernel's launches with stage one before the function; a function has the name of its site."""
    for site, steps in kernel.launches.items():
        if name in steps:
            at = steps.index(name)
            return {**kernel.launches, site: (*steps[:at], first, *steps[at:])}
    return {**kernel.launches, name: (first, name)}
