"""Inner tiles: programs whose tile lies inside all bounds run a copy of the kernel without masks.

Only the programs at an edge need the comparisons. In a window, where each load has bounds of its own, they are most of
the instructions.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.bounds import Inequality, find_inner_condition
from kernelsearch.propose.analysis.effects import ACCESSES, OTHER
from kernelsearch.propose.analysis.flow import drop_unread
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.peel_tail import remove_masks


class InnerTiles(Edit):
    summary = "no masks in programs whose tiles lie inside all bounds"
    refusal = "no mask compares lanes of a program with bounds"

    def change(self, view: View) -> Changes:
        before, rest = _split(view)
        conditions = _find_conditions(view, before, rest)
        if not conditions:
            return
        view.must_only({*ACCESSES, OTHER}, rest)
        inner = remove_masks(copy.deepcopy(rest), conditions)
        names = {n: view.fresh_name(f"{n}_in") for n in sorted(tree.writes(inner) - tree.writes(before))}
        test = " & ".join(f"({c})" for c in _keep_strictest(conditions.values()))
        branch = tree.make_branch(test, [tree.rename(s, names) for s in inner], rest)
        patch = tree.rebuild(view.node, drop_unread([*before, branch], view.helpers))
        yield view.rewrite(patch, "Programs whose tiles lie inside all bounds run without masks.")


def _split(view: View) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """(Statements that compute scalars and tiles of indices, those that compare tiles, and all from the first access).

    The second ones are in the order of the body.
    """
    first = next((i for i, s in enumerate(view.body) if not tree.assignment(s) or not view.does_only(set(), s)), 0)
    before: list[ast.stmt] = []
    rest: list[ast.stmt] = []
    for stmt in view.body[:first]:
        compares = any(isinstance(n, ast.Compare) and view.shapes.of(n) for n in ast.walk(stmt))
        crossed = tree.writes(stmt) & (tree.reads(rest) | tree.writes(rest)) or tree.reads(stmt) & tree.writes(rest)
        (rest if compares or crossed else before).append(stmt)
    return before, [*rest, *view.body[first:]]


def _find_conditions(view: View, before: list[ast.stmt], rest: list[ast.stmt]) -> dict[str, Inequality]:
    """The condition under which each comparison holds in a whole program, by the comparison's text."""
    known = tree.writes(before) | set(view.function.params) - view.flow.assigned
    found: dict[str, Inequality | None] = {}
    for stmt in rest:
        outside = not isinstance(stmt, (ast.For, ast.While, ast.If))
        for node in (n for n in ast.walk(stmt) if isinstance(n, ast.Compare) and len(n.ops) == 1):
            text = tree.text_of(node)
            bounds = outside and view.shapes.of(node) and not _is_between_lanes(view, node)
            condition = find_inner_condition(view, node, known) if bounds else None
            found[text] = condition if found.get(text, condition) == condition else None
    return {text: condition for text, condition in found.items() if condition}


def _is_between_lanes(view: View, node: ast.Compare) -> bool:
    """Whether lanes are compared with lanes: a triangle, where few programs lie, and no bound."""
    sides = (view.flow.expand(side, view.flow.at(node)) for side in (node.left, *node.comparators))
    return all(tree.calls(side, "arange") for side in sides)


def _keep_strictest(conditions: Iterable[Inequality]) -> list[Inequality]:
    """The conditions without those that follow from another."""
    kept: dict[tuple[object, str], Inequality] = {}
    for one in conditions:
        other = kept.setdefault((one.terms, one.op), one)
        if (one.apart < other.apart) == (one.op == "<="):
            kept[one.terms, one.op] = one
    return list(kept.values())
