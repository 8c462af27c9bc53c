"""Early loads: independent loads are issued before a reduction or a loop that would delay them."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import READS
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit


class EarlyLoads(Edit):
    summary = "independent loads moved ahead of reductions and loops"
    refusal = "no load comes after a reduction or a loop that it does not depend on"

    def change(self, view: View) -> Changes:
        patch = tree.Patch(view.text)
        moved = sum(_move(view, patch, block) for block in tree.blocks(view.body))
        if moved:
            yield view.rewrite(patch, f"{moved} loads start before the reductions that they need not wait for.")


def _move(view: View, patch: tree.Patch, block: list[ast.stmt]) -> int:
    """Moves the loads of a block up past slow statements; the number of moved loads."""
    order = list(block)
    moved: list[ast.stmt] = []
    for stmt in block:
        plain = isinstance(stmt, ast.Assign) and tree.calls(stmt, "load") and tree.assignment(stmt)
        if not plain or not view.does_only(READS, stmt):
            continue
        to = at = order.index(stmt)
        while to > 0 and view.does_only(READS, order[to - 1]) and _are_apart(order[to - 1], stmt):
            to -= 1
        if any(isinstance(s, ast.For) or tree.calls(s, "sum", "max", "min", "dot") for s in order[to:at]):
            order.insert(to, order.pop(at))
            moved.append(stmt)
    for stmt in moved:
        follower = next(s for s in order[order.index(stmt) + 1 :] if s not in moved)
        patch.insert_before(follower, tree.text_of(stmt) + "\n")
        patch.replace_stmt(stmt, "")
    return len(moved)


def _are_apart(one: ast.stmt, other: ast.stmt) -> bool:
    """Whether neither assigns a name that the other uses."""
    names = [(tree.writes(s), tree.reads(s) | tree.writes(s)) for s in (one, other)]
    return not (names[0][0] & names[1][1] or names[1][0] & names[0][1])
