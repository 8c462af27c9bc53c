"""Split-k and split-rows: SPLIT programs share one long accumulation, and a second kernel merges the parts.

Stage one stores each program's float32 accumulators in scratch, densely and by program, so it needs no mask.
Stage two has the grid of the original, merges the parts in a fixed order and runs what follows the accumulation:
sums, maxima and minima of one loop, or the mean and the squares of what is left of one or two.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import COMBINE, is_identity, update_of
from kernelsearch.propose.analysis.effects import ACCESSES, OTHER, READS
from kernelsearch.propose.analysis.flow import find_unbound
from kernelsearch.propose.analysis.moments import Moments, find_moments
from kernelsearch.propose.analysis.view import Change, Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.base import Edit


@dataclass(frozen=True)
class Accumulator:
    """One value that a part hands on: its name, the kind of its reduction, and the shape of its block."""

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
    summary = "split-k / split-rows: partial accumulators in scratch, merged by a second kernel"

    def change(self, view: View) -> Changes:
        view.must_be_one_stage()
        refuse_if(view.function.calls, "it calls helper functions")
        free = [a for a in (0, 1, 2) if a not in view.axes]
        refuse_if(not free, "all three grid axes are in use")
        moments = _outermost_moments(view)
        if moments is None:
            yield _SplitSums(view, free[0]).change()
        elif moments.lanes is None:
            yield _SplitMoments(moments, True, free[0]).change()
            yield _SplitMoments(_outermost_moments(replace(view)), False, free[0]).change()  # type: ignore[arg-type]
        else:
            yield _SplitMoments(moments, moments.lanes, free[0]).change()


def _outermost_moments(view: View) -> Moments | None:
    """The moments whose loop is outside of any other and of branches."""
    return next((m for m in find_moments(view) if m.place is m.view.body), None)


class _Split:
    """The two stages of a function that accumulates in loop; axis is the free grid axis that stage one uses."""

    def __init__(self, view: View, axis: int, loop: ast.For, before: list[ast.stmt], after: list[ast.stmt]) -> None:
        self.view, self.axis, self.loop, self.before, self.after = view, axis, loop, before, after
        if tree.callee(loop.iter) == "tl.static_range" or tree.range_of(loop) is None:
            raise NotApplicable("the loop does not run over a range")
        view.must_only({*ACCESSES, OTHER}, view.body)
        view.must_only(READS, [*before, loop], "before the loop is over it")
        refuse_if(any(isinstance(s, ast.If) for s in tree.all_statements(loop.body)), "the loop has branches")
        refuse_if(set(view.function.params) & tree.writes(view.body), "it assigns to a parameter")
        self.low, self.high, self.step = map(tree.text_of, tree.range_of(loop))  # type: ignore[arg-type]
        self.split = view.fresh_name("SPLIT")
        self.share, self.part = view.fresh_name("share"), view.fresh_name("part")
        self.accumulators = self.find_accumulators()
        constexprs = set(view.function.constexprs)
        for a in self.accumulators:
            if len(a.shape) > 2 or not all(tree.reads(tree.expression(d)) <= constexprs for d in a.shape):
                raise NotApplicable(f"the shape of {a.name} is not known before the launch")
        self.pointers = {a.name: view.fresh_name(f"{a.name}_partial_ptr") for a in self.accumulators}

    def find_accumulators(self) -> list[Accumulator]:
        """What a part hands on."""
        raise NotImplementedError

    def write_part(self, begin: str, end: str) -> list[ast.stmt]:
        """The statements that accumulate from begin to end, both expressions."""
        raise NotImplementedError

    def write_merge(self) -> str:
        """The statements that make the accumulators of those of all parts."""
        raise NotImplementedError

    # ------------------------------------------------------------ the two stages

    def change(self) -> Change:
        view, split, first = self.view, self.split, self.view.fresh_name(f"{self.view.function.name}_partial")
        axes = list(view.grid)
        axes[self.axis] = split
        sizes = [tree.parenthesise(view.grid[a]) for a in view.axes]
        programs = " * ".join([split, *sizes])
        scratch = {self.pointers[a.name]: ("float32", f"({programs}, {a.numel})") for a in self.accumulators}
        full = f"min(128, next_power_of_2(max(2, num_sms // {tree.parenthesise(' * '.join(sizes) or '1')})))"
        new = view.make_stages(
            first,
            (self._stage_one(), self._stage_two()),
            [*self.pointers.values(), f"{split}: tl.constexpr"],
            f"({', '.join(axes)})",
            scratch,
            {split: ((2, 4, 8, 16, 32, 64, 128, full), full)},
        )
        return Change(
            new, f"{split} programs share each accumulation, so that few large outputs still fill the device."
        )

    def slots(self, part: str, acc: Accumulator, across: str = "") -> str:
        """The address of a part's slot in an accumulator's scratch; across lays the slot along an axis."""
        programs, program = list[str](), "0"
        for a in reversed(self.view.axes):
            programs.insert(0, f"tl.num_programs({a})")
            program = f"tl.program_id({a})" + ("" if program == "0" else f" + tl.num_programs({a}) * ({program})")
        slot = f"({part} * ({' * '.join(programs) or '1'}) + {program}).to(tl.int64)"
        address = f"{self.pointers[acc.name]} + {slot} * ({acc.numel})"
        return f"{address} + ({acc.index}){across}" if acc.index else address

    def write_share(self) -> str:
        """The statement that computes how much of the range a part has: whole steps."""
        length = self.high if self.low == "0" else f"{self.high} - ({self.low})"
        whole = f"tl.cdiv(tl.cdiv({length}, {self.step}), {self.split})"
        return f"{self.share} = {whole} * {tree.parenthesise(self.step)}\n"

    def _stage_one(self) -> list[ast.stmt]:
        """The body that runs a share of the loop's iterations and stores the accumulators."""
        begin = self.view.fresh_name("begin")
        start = "" if self.low == "0" else f"{self.low} + "
        head = f"{self.part} = tl.program_id({self.axis})\n{self.write_share()}"
        head += f"{begin} = {start}{self.part} * {self.share}\n"
        # Of more parts than steps the last begin behind the end: see loop_unroll for what an unrolled loop does there.
        end = f"tl.maximum(tl.minimum({begin} + {self.share}, {self.high}), {begin})"
        work = self.write_part(begin, end)
        stores = "".join(f"tl.store({self.slots(self.part, a)}, {a.name})\n" for a in self.accumulators)
        before = self._needed_before([*work, self.loop.iter])
        return [*before, *tree.statements(head), *work, *tree.statements(stores)]

    def _stage_two(self) -> list[ast.stmt]:
        """The body that merges the parts and goes on as after the loop."""
        merge = tree.statements(self.write_merge())
        return [*self._needed_before([*merge, *self.after]), *merge, *self.after]

    def _needed_before(self, body: Sequence[ast.AST]) -> list[ast.stmt]:
        """The statements before the loop that the body and the accumulators depend on."""
        needed = tree.reads(body) | set(self.pointers)
        statements: list[ast.stmt] = []
        for stmt in reversed(self.before):
            if tree.writes(stmt) & needed or not tree.writes(stmt):
                statements.insert(0, stmt)
                needed |= tree.reads(stmt)
        return statements


class _SplitSums(_Split):
    """The stages of a function with one loop, whose accumulators are sums, maxima and minima."""

    def __init__(self, view: View, axis: int) -> None:
        loops = tree.loops(view.body)
        if len(loops) != 1 or loops[0] not in view.body:
            raise NotApplicable("it does not have exactly one loop, outside of branches")
        at = view.body.index(loops[0])
        super().__init__(view, axis, loops[0], view.body[:at], view.body[at + 1 :])

    def find_accumulators(self) -> list[Accumulator]:
        if found := [self._accumulator(name) for name in self._carried()]:
            return found
        raise NotApplicable("the loop accumulates nothing")

    def write_part(self, begin: str, end: str) -> list[ast.stmt]:
        return [tree.with_range(self.loop, begin, end, self.step)]

    def write_merge(self) -> str:
        text = f"for {self.part} in range({self.split}):\n"
        for a in self.accumulators:
            load = f"tl.load({self.slots(self.part, a)})"
            text += f"    {a.name} = {COMBINE[a.kind].format(a=a.name, b=load)}\n"
        return text

    def _accumulator(self, name: str) -> Accumulator:
        writers = [s for s in self.loop.body if name in tree.writes(s)]
        update = update_of(writers[0]) if len(writers) == 1 else None
        if update is None:
            raise NotApplicable(f"{name} is not a plain accumulator of the loop")
        if name in tree.reads([s for s in self.loop.body if s is not writers[0]]):
            raise NotApplicable(f"the loop reads its accumulator {name}")
        pair = tree.only_assignment(self.before, name)
        if pair is None or not is_identity(pair[1], update.kind):
            raise NotApplicable(f"{name} does not start as a float32 identity")
        shape = self.view.shapes.names.get(name) if name not in tree.writes(self.after) else None
        shape = self.view.shapes.of(pair[1]) if shape is None else shape
        if shape is None:
            raise NotApplicable(f"the shape of {name} is not known before the launch")
        return Accumulator(name, update.kind, shape)

    def _carried(self) -> list[str]:
        """Names that an iteration takes over from the one before it, or that are read after the loop."""
        read = {**find_unbound(self.loop.body), **find_unbound(self.after)}
        return [name for name in read if name in tree.writes(self.loop.body)]


class _SplitMoments(_Split):
    """The stages of a function whose loops give mean and squares; lanes says how a part keeps them."""

    def __init__(self, moments: Moments, lanes: bool, axis: int) -> None:
        self.moments, self.lanes = moments, lanes
        view, before, after = moments.view, moments.before, moments.after
        refuse_if(tree.loops([*before, *after]), "it has loops beside those for mean and variance")
        super().__init__(view, axis, moments.loop, before, after)

    def find_accumulators(self) -> list[Accumulator]:
        m = self.moments
        refuse_if(len(m.shape) > 1, "the mean has two axes")
        return [Accumulator(name, "sum", m.shape) for name in (m.mean, m.squares)]

    def write_part(self, begin: str, end: str) -> list[ast.stmt]:
        last, extent = self.view.fresh_name("end"), self.view.fresh_name("extent")
        head = f"{last} = {end}\n{extent} = tl.maximum({last} - {begin}, 1)\n"
        return tree.statements(head + self.moments.write(self.lanes, begin, last, extent))

    def write_merge(self) -> str:
        """Each part's mean and squares count by the number of its elements; all parts are one block."""
        m, fresh = self.moments, self.view.fresh_name
        count, means, apart = fresh("count"), fresh("means"), fresh("apart")
        down, across = ("[:, None]", "[None, :]") if m.shape else ("", "")
        mean, squares = (f"tl.load({self.slots(self.part, a, across)})" for a in self.accumulators)
        return (
            f"{self.write_share()}{self.part} = tl.arange(0, {self.split}){down}\n"
            f"{count} = tl.minimum({self.share}, {m.size} - {self.part} * {self.share})\n"
            f"{count} = tl.maximum({count}, 0).to(tl.float32)\n"
            f"{means} = {mean}\n"
            f"{m.mean} = tl.sum({means} * ({count} / {m.size}), axis=0)\n"
            f"{apart} = {means} - {m.mean}{across}\n"
            f"{m.squares} = tl.sum(tl.where({count} > 0, {squares} + {count} * {apart} * {apart}, 0.0), axis=0)\n"
        )
