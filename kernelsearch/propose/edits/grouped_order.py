"""Grouped (swizzled) program order: programs that run together share rows and columns of the operands in L2."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced

GROUPS = (1, 2, 4, 8, 16)


class GroupedOrder(FunctionEdit):
    name = "grouped_order"
    summary = "program order in groups of GROUP along the slow axis (tl.swizzle2d)"

    def change(self, view: View) -> list[Change]:
        if tree.calls(view.node, "swizzle2d"):
            raise CannotApply("its program order is grouped already")
        first, second, sizes, last = _plain(view) or _split(view)
        group = view.fresh("GROUP")
        patch = tree.Patch(view.text)
        # Axis 0 runs fastest: it is swizzle2d's column, so that its order is the order of launch.
        patch.after(
            last,
            f"{second}, {first} = tl.swizzle2d({second}, {first}, {sizes[1]}, {sizes[0]}, {group})\n",
        )
        patch.param(f"{group}: tl.constexpr")
        kernel = replaced(view, patch.text(), space={group: GROUPS}, config={group: 8})
        why = f"Programs are visited in groups of {group} along the slow axis, so that neighbours share operands in L2."
        return [Change(kernel, why)]


def _plain(view: View) -> tuple[str, str, tuple[str, str], ast.stmt] | None:
    """`a = tl.program_id(0)` and `b = tl.program_id(1)` at the top of the body."""
    names: dict[int, tuple[str, ast.stmt]] = {}
    for stmt in view.body:
        pair = tree.assignment(stmt)
        if pair and tree.is_tl(pair[1], "program_id"):
            axis = tree.argument(pair[1], 0, "axis")  # type: ignore[arg-type]
            if isinstance(axis, ast.Constant):
                names[axis.value] = (pair[0], stmt)  # type: ignore[index]
    uses = tree.calls(view.node, "program_id")
    if set(names) != {0, 1} or len(uses) != 2:
        return None
    (first, at), (second, there) = names[0], names[1]
    last = max(at, there, key=lambda s: s.lineno)
    between = view.body[view.body.index(min(at, there, key=lambda s: s.lineno)) + 1 : view.body.index(last)]
    if {first, second} & (tree.reads(between) | tree.writes(between)):
        return None
    if tree.calls(view.node, "num_programs"):
        return None
    return first, second, ("tl.num_programs(0)", "tl.num_programs(1)"), last


def _split(view: View) -> tuple[str, str, tuple[str, str], ast.stmt]:
    """`a = item % n` and `b = item // n` next to each other, where item loops over `n * m` programs."""
    for loop in tree.loops(view.body):
        bounds = tree.range_of(loop)
        if bounds is None or not isinstance(bounds[1], ast.BinOp) or not isinstance(bounds[1].op, ast.Mult):
            continue
        pairs = [tree.assignment(s) for s in loop.body[:2]]
        if len(pairs) < 2 or pairs[0] is None or pairs[1] is None:
            continue
        item = loop.target.id  # type: ignore[attr-defined]
        n, m = tree.text_of(bounds[1].left), tree.text_of(bounds[1].right)
        if tree.text_of(pairs[0][1]) == f"{item} % {n}" and tree.text_of(pairs[1][1]) == f"{item} // {n}":
            return pairs[0][0], pairs[1][0], (n, m), loop.body[1]
    raise CannotApply("it has no two program ids that it takes by plain assignments")
