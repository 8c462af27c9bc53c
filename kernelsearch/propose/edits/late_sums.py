"""Sums after the last product: what only the next iteration needs is added up while the matrix units still work."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit


class LateSums(Edit):
    summary = "sums that only the next iteration needs come after the loop's last dot"
    refusal = "no loop adds up before its last dot what nothing until then needs"

    def change(self, view: View) -> Changes:
        for loop in tree.loops(view.body):
            dots = [s for s in loop.body if tree.calls(s, "dot")]
            if dots and not tree.loops(loop.body) and (late := _find_late(loop.body[: loop.body.index(dots[-1]) + 1])):
                patch = tree.Patch(view.text)
                for stmt in late:
                    patch.replace_stmt(stmt, "")
                    patch.insert_after(dots[-1], f"{tree.text_of(stmt)}\n")
                yield view.rewrite(patch, "The sum is computed while the matrix units work on the last product.")
                return


def _find_late(block: list[ast.stmt]) -> list[ast.stmt]:
    """The sums that may as well come after the block."""
    late = []
    for at, stmt in enumerate(block[:-1]):
        pair, behind = tree.assignment(stmt), block[at + 1 :]
        if pair is None or not tree.calls(stmt, "sum") or tree.calls(stmt, "load", "dot"):
            continue
        if pair[0] not in tree.reads(behind) | tree.writes(behind) and not tree.reads(stmt) & tree.writes(behind):
            late.append(stmt)
    return late
