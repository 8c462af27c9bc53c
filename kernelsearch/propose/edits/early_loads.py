"""Early loads: independent loads are issued before a reduction or a loop that would make them wait."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced


class EarlyLoads(FunctionEdit):
    name = "early_loads"
    summary = "independent loads moved ahead of reductions and loops"

    def change(self, view: View) -> list[Change]:
        patch = tree.Patch(view.text)
        moved = sum(_move(patch, block) for block in tree.blocks(view.body))
        if not moved:
            raise CannotApply("no load stands behind a reduction or a loop that it does not depend on")
        why = f"{moved} loads start before the reductions that they need not wait for."
        return [Change(replaced(view, patch.text()), why)]


def _move(patch: tree.Patch, block: list[ast.stmt]) -> int:
    order = list(block)
    moved: list[ast.stmt] = []
    for stmt in block:
        if not (isinstance(stmt, ast.Assign) and tree.calls(stmt, "load") and tree.assignment(stmt)):
            continue
        at = order.index(stmt)
        to = at
        while to > 0 and _independent(order[to - 1], stmt):
            to -= 1
        if any(_slow(s) for s in order[to:at]):
            order.insert(to, order.pop(at))
            moved.append(stmt)
    for stmt in moved:
        follower = next(s for s in order[order.index(stmt) + 1 :] if s not in moved)
        patch.before(follower, tree.text_of(stmt) + "\n")
        patch.stmt(stmt, "")
    return len(moved)


def _independent(other: ast.stmt, stmt: ast.stmt) -> bool:
    """Whether stmt may run before other: neither gives the other a name, and other stores nothing."""
    if tree.calls(other, "store") or any(tree.called(n).startswith("tl.atomic") for n in ast.walk(other)):
        return False
    if isinstance(other, (ast.Return, ast.While)):
        return False
    mine = tree.writes(stmt)
    return not (tree.writes(other) & tree.reads(stmt) or mine & (tree.reads(other) | tree.writes(other)))


def _slow(stmt: ast.stmt) -> bool:
    return isinstance(stmt, ast.For) or bool(tree.calls(stmt, "sum", "max", "min", "dot"))
