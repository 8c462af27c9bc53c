"""Grouped (swizzled) program order: programs that run together share rows and columns of the operands in L2."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import strip_hints
from kernelsearch.propose.analysis.view import Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.base import Edit


class GroupedOrder(Edit):
    summary = "program order in groups of GROUP along the slow axis (tl.swizzle2d)"

    def change(self, view: View) -> Changes:
        refuse_if(tree.calls(view.node, "swizzle2d"), "its program order is grouped already")
        first, second, sizes, last = _plain(view) or _split(view)
        group = view.fresh_name("GROUP")
        patch = tree.Patch(view.text)
        # Axis 0 runs fastest, so it is the column of swizzle2d: that has the order of launch.
        swizzled = f"tl.swizzle2d({second}, {first}, {sizes[1]}, {sizes[0]}, {group})"
        patch.insert_after(last, f"{second}, {first} = {swizzled}\n")
        why = f"Programs are visited in groups of {group} along the slow axis, so that neighbours share operands in L2."
        yield view.rewrite(patch, why, tunables={group: ((1, 2, 4, 8, 16), 8)})


def _plain(view: View) -> tuple[str, str, tuple[str, str], ast.stmt] | None:
    """`a = tl.program_id(0)` and `b = tl.program_id(1)` at the top of the body: names, sizes, the later statement."""
    names: dict[int | None, tuple[str, int]] = {}
    for at, stmt in enumerate(view.body):
        pair = tree.assignment(stmt)
        value = strip_hints(pair[1]) if pair else stmt
        if pair and tree.is_tl(value, "program_id"):
            names[tree.program_axis(value)] = (pair[0], at)
    if set(names) != {0, 1} or len(tree.calls(view.node, "program_id", "num_programs")) != 2:
        return None
    (first, at), (second, there) = names[0], names[1]
    between = view.body[min(at, there) + 1 : max(at, there)]
    if {first, second} & (tree.reads(between) | tree.writes(between)):
        return None
    return first, second, ("tl.num_programs(0)", "tl.num_programs(1)"), view.body[max(at, there)]


def _split(view: View) -> tuple[str, str, tuple[str, str], ast.stmt]:
    """The same of `a = item % n` and `b = item // n` at the top of a loop of item over `n * m` programs."""
    for loop in tree.loops(view.body):
        bounds = tree.range_of(loop)
        if bounds is None or not isinstance(bounds[1], ast.BinOp) or not isinstance(bounds[1].op, ast.Mult):
            continue
        pairs = [pair for s in loop.body[:2] if (pair := tree.assignment(s))]
        item, n, m = map(tree.text_of, (loop.target, bounds[1].left, bounds[1].right))
        if [tree.text_of(value) for _, value in pairs] == [f"{item} % {n}", f"{item} // {n}"]:
            return pairs[0][0], pairs[1][0], (n, m), loop.body[1]
    raise NotApplicable("it has no two program ids that it takes by plain assignments")
