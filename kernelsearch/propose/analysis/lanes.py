"""Accumulators with one element per lane as reductions of every tile: the inverse of `lane_accumulator`."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import accumulate, tree
from kernelsearch.propose.analysis.view import View


def reduce_tiles(view: View) -> View | None:
    """The view with its accumulators by lane as sums, maxima and minima of every tile; None if it has none.

    An accumulator starts as a float32 block of the operation's identity, is updated once in a loop, and is read once
    more: by the same reduction after it. Where that reduction gets a name, the accumulator takes it.
    """
    patch = tree.Patch(view.text)
    for block in tree.blocks(view.body):
        for place, loop in enumerate(block):
            for stmt in loop.body if isinstance(loop, ast.For) else ():
                update = accumulate.update_of(stmt)
                if update is not None and not tree.calls(update.value, "dot", update.kind):
                    _reduce(view, patch, update, [*block[:place], loop], block[place + 1 :])
    return None if patch.is_empty else view.with_text(patch.text())


def _reduce(
    view: View, patch: tree.Patch, update: accumulate.Update, before: list[ast.stmt], after: list[ast.stmt]
) -> None:
    """Adds to the patch what makes a reduction of every tile of one accumulator, if it has the form.

    before are the statements up to the loop and with it.
    """
    name, kind = update.name, update.kind
    start = tree.only_assignment(before[:-1], name)
    if start is None or not isinstance(start[0], ast.Assign) or not tree.is_tl(start[1], "zeros", "full"):
        return
    plain = ((s, accumulate.reduction_of(c, kind)) for s in after for c in tree.calls(s, kind))
    calls = [(s, c) for s, c in plain if c and isinstance(c.args[0], ast.Name) and c.args[0].id == name]
    if (
        not accumulate.is_identity(start[1], kind)
        or not accumulate.is_float32(start[1])
        or not calls
        or _count_reads(view.node, name) != _count_reads(update.stmt, name) + 1
    ):
        return
    stmt, total = calls[0]
    shape = view.shapes.of(total)
    if shape is None or view.shapes.of(update.value) != view.shapes.of(start[1]):
        return
    target = name
    if isinstance(stmt, ast.Assign) and stmt.value is total and (pair := tree.assignment(stmt)):
        target = pair[0] if tree.is_assigned_once(view.body, pair[0]) and pair[0] not in tree.reads(before) else name
    patch.replace_stmt(start[0], f"{target} = {accumulate.format_identity(shape, kind)}")
    folded = accumulate.COMBINE[kind].format(a=target, b=accumulate.format_reduction(total, tree.text_of(update.value)))
    patch.replace_stmt(update.stmt, f"{target} = {folded}")
    if target == name:
        patch.replace_expr(total, name)
    else:
        patch.replace_stmt(stmt, "")


def _count_reads(node: ast.AST, name: str) -> int:
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name)
    return sum(isinstance(n.ctx, ast.Load) for n in names)
