"""Rewrites accumulators with one element per lane, reduced once after their loop, as sums that reduce every tile.

The inverse of `lane_accumulator`: not faster, but the form that other edits recognise.
"""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import Update, is_identity, update_of


def sum_lanes(text: str) -> str | None:
    """The function with every such accumulator as a scalar; None if there is none.

    One starts as float32 zeros, is added to once in a loop, and is read once: by `tl.sum(name, axis=0)` after it.
    """
    patch = tree.Patch(text)
    for block in tree.blocks(tree.strip_docstrings(patch.node.body)):
        for place, loop in enumerate(block):
            for stmt in loop.body if isinstance(loop, ast.For) else ():
                lanes = _lanes(patch.node, block, place, stmt)
                if lanes is None:
                    continue
                update, start, total = lanes
                patch.replace_stmt(start, f"{update.name} = 0.0")
                patch.replace_stmt(stmt, f"{update.name} += tl.sum({tree.text_of(update.value)}, axis=0)")
                patch.replace_expr(total, update.name)
    return None if patch.is_empty else patch.text()


def _lanes(
    function: ast.FunctionDef, block: list[ast.stmt], place: int, stmt: ast.stmt
) -> tuple[Update, ast.Assign, ast.Call] | None:
    """The update in stmt, of the loop at place, the statement that starts its lanes, and the call that reduces them."""
    update = update_of(stmt)
    if update is None or update.kind != "sum" or tree.calls(update.value, "dot", "sum"):
        return None
    start = _start(block[:place], update.name)
    behind = ast.Module(block[place + 1 :], [])
    total = next((c for c in tree.calls(behind, "sum") if _reduces(c, update.name)), None)
    if start is None or total is None or _reads(function, update.name) != _reads(stmt, update.name) + 1:
        return None
    return update, start, total


def _reads(node: ast.AST, name: str) -> int:
    names = (n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == name)
    return sum(isinstance(n.ctx, ast.Load) for n in names)


def _start(before: list[ast.stmt], name: str) -> ast.Assign | None:
    """The statement that makes the lanes, float32 zeros along one axis."""
    writers = [s for s in before if name in tree.writes(s)]
    if len(writers) != 1 or not isinstance(writers[0], ast.Assign) or not tree.is_tl(writers[0].value, "zeros"):
        return None
    shape = tree.argument(writers[0].value, 0, "shape")  # type: ignore[arg-type]
    one_axis = isinstance(shape, (ast.List, ast.Tuple)) and len(shape.elts) == 1
    return writers[0] if one_axis and is_identity(writers[0].value, "sum") else None


def _reduces(call: ast.Call, name: str) -> bool:
    """Whether a `tl.sum` is of this name, along its only axis."""
    first, axis = tree.argument(call, 0, "input"), tree.argument(call, 1, "axis")
    return isinstance(first, ast.Name) and first.id == name and (axis is None or tree.is_number(axis, 0))
