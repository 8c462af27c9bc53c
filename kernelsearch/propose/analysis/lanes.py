"""Accumulators with one element per lane as sums of every tile: the inverse of `lane_accumulator`."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import format_identity, format_reduction, is_identity, update_of
from kernelsearch.propose.analysis.view import View


def sum_lanes(view: View) -> View | None:
    """The view with its accumulators by lane as sums of every tile; None if it has none.

    An accumulator starts as float32 zeros, is added to once in a loop, and is read once: by `tl.sum` after it.
    """
    patch = tree.Patch(view.text)
    for block in tree.blocks(view.body):
        for place, loop in enumerate(block):
            for stmt in loop.body if isinstance(loop, ast.For) else ():
                update = update_of(stmt)
                if update is None or update.kind != "sum" or tree.calls(update.value, "dot", "sum"):
                    continue
                name, behind = update.name, ast.Module(block[place + 1 :], [])
                start = _start(block[:place], name)
                total = next((c for c in tree.calls(behind, "sum") if _is_of(c, name)), None)
                if start is None or total is None or _reads(view.node, name) != _reads(stmt, name) + 1:
                    continue
                shape = view.shapes.of(total)
                if shape is None or view.shapes.of(update.value) != view.shapes.of(start.value):
                    continue
                value = tree.text_of(update.value)
                patch.replace_stmt(start, f"{name} = {format_identity(shape, 'sum')}")
                patch.replace_stmt(stmt, f"{name} += {format_reduction(total, value)}")
                patch.replace_expr(total, name)
    return None if patch.is_empty else view.with_text(patch.text())


def _reads(node: ast.AST, name: str) -> int:
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name)
    return sum(isinstance(n.ctx, ast.Load) for n in names)


def _start(before: list[ast.stmt], name: str) -> ast.Assign | None:
    """The statement that makes the lanes, float32 zeros."""
    writers = [s for s in before if name in tree.writes(s)]
    if len(writers) != 1 or not isinstance(writers[0], ast.Assign) or not tree.is_tl(writers[0].value, "zeros"):
        return None
    return writers[0] if is_identity(writers[0].value, "sum") else None


def _is_of(call: ast.Call, name: str) -> bool:
    """Whether a `tl.sum` is of this name and has no other arguments than axis and keep_dims."""
    plain = {k.arg for k in call.keywords} <= {"axis", "keep_dims"} and 1 <= len(call.args) <= 2
    return plain and isinstance(call.args[0], ast.Name) and call.args[0].id == name
