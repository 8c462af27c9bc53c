"""Online softmax statistics: the pass for the maximum and the pass for the sum of exponentials become one.

Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018), algorithm 3: the running sum is
rescaled when the maximum grows. A maximum of minus infinity is replaced by 0 in the exponent, so a first
tile without finite values gives 0 and not NaN. Where the block's shape is known, every lane has statistics of its own
with the rescaled reduction after the loop, or every few neighbours share theirs: then there is one exponential an
element and not two. Else there is one maximum and sum per row.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from textwrap import indent

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import format_identity, format_reduction
from kernelsearch.propose.analysis.lanes import reduce_tiles
from kernelsearch.propose.analysis.passes import TwoPasses, find_two_passes, inline_names
from kernelsearch.propose.analysis.rescaled_sums import Exponential
from kernelsearch.propose.analysis.shapes import Shape
from kernelsearch.propose.analysis.view import Change, Changes, Tunable, View
from kernelsearch.propose.edits.base import Edit

NATURAL = Exponential("tl.exp", "")
SIZES = (4, 8, 16)
"""Elements of a group."""


class Online(Edit):
    summary = "maximum and sum of exponentials in one rescaled pass"
    refusal = "no loop for a maximum is followed by a loop for a sum of exponentials of the same block"

    def change(self, view: View) -> Changes:
        reduced = reduce_tiles(view)
        for form in (view, *([reduced] if reduced else [])):
            for passes in find_two_passes(form, "max", "sum"):
                if _is_softmax(passes):
                    shape = form.shapes.of(passes.first.reduction.args[0])
                    yield from (_merged(form, passes, lanes) for lanes in list_lanes(form, shape))
                    if not shape:
                        yield _merged(form, passes, None)
                    return


def _is_softmax(passes: TwoPasses) -> bool:
    """Whether the second loop sums `tl.exp(block - maximum)` of the first loop's block and maximum."""
    first, second = passes.first, passes.second
    block = inline_names(first.loop.body, first.reduction.args[0])
    wanted = ast.BinOp(block, ast.Sub(), ast.Name(first.name, ast.Load()))
    exponential = inline_names(second.loop.body, second.reduction.args[0])
    if not (tree.is_tl(exponential, "exp") and tree.is_same(exponential.args[0], wanted)):
        return False
    rest = [s for s in passes.between if s not in (first.start, second.start)]
    inside = tree.writes(first.loop)  # rest moves ahead of both loops
    return not tree.reads(rest) & (inside | {second.name}) and not tree.writes(rest) & (inside | tree.reads(first.loop))


@dataclass(frozen=True)
class Lanes:
    """The lanes of a block that have statistics of their own: all of its elements, or each group of neighbours.

    group is the name of how many elements a group has, empty for one. names are those of new variables, by what they
    are for: the forms of one kernel share them.
    """

    shape: Shape
    group: str
    names: dict[str, str]

    @property
    def tunables(self) -> dict[str, Tunable]:
        """The group as a parameter. A thread has 16 bytes of neighbours, 4 elements of float32 and 8 of 16 bits."""
        return {self.group: (SIZES, SIZES[0])} if self.group else {}

    def name(self, view: View, base: str) -> str:
        """A new name like base."""
        if base not in self.names:
            self.names[base] = view.fresh_name(base)
        return self.names[base]

    @property
    def groups(self) -> tuple[str, str]:
        """(How many groups a block has, how many elements a group has): a tile may be smaller than GROUP."""
        side = tree.parenthesise(self.shape[0])
        if side.isdigit() and int(side) >= max(SIZES):
            return f"{side} // {self.group}", self.group
        return (
            f"{side} // {self.group} if {side} > {self.group} else 1",
            f"{self.group} if {side} > {self.group} else {side}",
        )

    def format_start(self, kind: str) -> str:
        """The value that they begin with."""
        return format_identity(self.groups[:1] if self.group else self.shape, kind)


def list_lanes(view: View, shape: Shape | None) -> Iterator[Lanes]:
    """The ways to share statistics among the elements of a block of this shape, the most sparing one first."""
    names = dict[str, str]()
    if shape is not None and len(shape) == 1:
        yield Lanes(shape, view.fresh_name("GROUP"), names)
    if shape:
        yield Lanes(shape, "", names)


def _merged(view: View, passes: TwoPasses, lanes: Lanes | None) -> Change:
    """The function with the first loop doing the work of both."""
    first, second = passes.first, passes.second
    m, s = first.name, second.name
    block = tree.text_of(first.reduction.args[0])
    if lanes:
        head, step_of, tail = format_lanes(view, m, s, first.reduction, second.reduction, lanes)
        step = step_of(block)
        whose = "every GROUP elements" if lanes.group else "every lane"
        why = f"One pass keeps a running maximum and a rescaled sum for {whose}; the reduction comes once, at the end."
    else:
        head = tail = ""
        new, safe = view.fresh_name(f"{m}_new"), view.fresh_name(f"{m}_safe")
        exponential = NATURAL.format(tree.parenthesise(block), safe)
        step = f"{new} = tl.maximum({m}, {tree.text_of(first.reduction)})\n"
        step += format_rescaling(safe, new, s, m, format_reduction(second.reduction, exponential))
        why = "One pass keeps a running maximum and rescales the sum when it grows: the data is read once less."
    body = "".join(tree.text_of(x) + "\n" for x in first.body) + step
    loop = f"for {tree.text_of(first.loop.target)} in {tree.text_of(first.loop.iter)}:\n{indent(body, '    ')}"
    moved = "".join(tree.text_of(x) + "\n" for x in passes.between)
    patch = passes.merge(view, moved + head + loop + tail)
    return view.rewrite(patch, why, tunables=lanes.tunables if lanes else {})


def format_lanes(
    view: View,
    m: str,
    s: str,
    highest: ast.Call,
    summed: ast.Call,
    lanes: Lanes,
    exponential: Exponential = NATURAL,
    expand: str = "",
) -> tuple[str, Callable[[str], str], str]:
    """A maximum m and a rescaled sum s in all lanes of a block: statements before the loop, in it, and after it.

    Those in the loop are given for a block's text; highest and summed reduce a block; expand is the subscript that
    gives a reduced block the block's rank again.
    """
    new, safe, ml, last, rows = (lanes.name(view, f"{m}_{x}") for x in ("new", "safe", "lanes", "last", "groups"))
    sl = lanes.name(view, f"{s}_lanes")

    def format_step(block: str) -> str:
        if not lanes.group:
            fresh = exponential.format(tree.parenthesise(block), safe)
            return f"{new} = tl.maximum({ml}, {block})\n" + format_rescaling(safe, new, sl, ml, fresh, exponential)
        fresh = f"tl.sum({exponential.format(rows, f'{safe}[:, None]')}, axis=1)"
        start = f"{rows} = tl.reshape({block}, [{', '.join(lanes.groups)}])\n"
        start += f"{new} = tl.maximum({ml}, tl.max({rows}, axis=1))\n"
        return start + format_rescaling(safe, new, sl, ml, fresh, exponential)

    head = f"{ml} = {lanes.format_start('max')}\n{sl} = {lanes.format_start('sum')}\n"
    tail = f"{m} = {format_reduction(highest, ml)}\n{last} = tl.where({m} == float('-inf'), 0.0, {m})\n"
    tail += f"{s} = {format_reduction(summed, f'{sl} * {exponential.format(ml, last + expand)}')}\n"
    return head, format_step, tail


def format_rescaling(
    safe: str, new: str, total: str, maximum: str, fresh: str, exponential: Exponential = NATURAL
) -> str:
    """The statements that add fresh to a total after the maximum grew to new; safe names the finite maximum."""
    return (
        f"{safe} = tl.where({new} == float('-inf'), 0.0, {new})\n"
        f"{total} = {total} * {exponential.format(maximum, safe)} + {fresh}\n"
        f"{maximum} = {new}\n"
    )
