"""Loop-invariant loads out of loops: what every iteration loads alike is loaded once before the loop.

The compiler hoists arithmetic itself, but no loads past stores; so the edit looks for loads, and takes along
what their addresses and masks need.
"""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced


class HoistInvariant(FunctionEdit):
    name = "hoist_invariant"
    summary = "loop-invariant loads (and what they need) out of loops"

    def change(self, view: View) -> list[Change]:
        if not any(tree.calls(loop, "load") for loop in tree.loops(view.body)):
            raise CannotApply("no load in a loop is the same in every iteration")
        stored = stored_bases(view) & _pointers(view)
        changes = []
        for loop in tree.loops(view.body):
            moved = _invariant(view, loop, stored)
            if not any(tree.calls(s, "load") for s in moved):
                continue
            changes.append(_hoisted(view, loop, moved))
        if not changes:
            raise CannotApply("no load in a loop is the same in every iteration")
        return changes


def stored_bases(view: View) -> set[str]:
    """Parameters whose memory the function writes, directly or through names."""
    bases: set[str] = set()
    for call in tree.calls(view.node, "store", "atomic_add", "atomic_max", "atomic_min", "atomic_xchg", "atomic_cas"):
        names = tree.reads(call.args[0])
        while True:
            more = {
                n
                for s in tree.all_statements(view.body)
                if (p := tree.assignment(s)) and p[0] in names
                for n in tree.reads(p[1])
            }
            if more <= names:
                break
            names = names | more
        bases |= names & set(view.function.params)
    return bases


def _invariant(view: View, loop: ast.For, stored: set[str]) -> list[ast.stmt]:
    """Statements of the loop's body that give the same in every iteration, in order."""
    varying = tree.writes(loop)
    moved: list[ast.stmt] = []
    for stmt in loop.body:
        pair = tree.assignment(stmt)
        if pair is None or isinstance(stmt, ast.AugAssign):
            continue
        name, value = pair
        once = sum(name in tree.writes(s) for s in tree.all_statements(loop.body) if not hasattr(s, "body")) == 1
        early = any(name in tree.reads(s) for s in loop.body[: loop.body.index(stmt)]) or name in tree.reads(value)
        if not once or early or tree.reads(value) & varying:
            continue
        if any(n.startswith("atomic") for n in (tree.called(c).rpartition(".")[2] for c in ast.walk(value))):
            continue
        if any(_bases(view, c, stmt) & stored for c in tree.calls(value, "load")):
            continue
        moved.append(stmt)
        varying.discard(name)
    return moved


def _pointers(view: View) -> set[str]:
    found = set()
    for call in tree.calls(view.node, "load", "store"):
        found |= tree.reads(view.flow.expand(call.args[0], view.flow.at(call))) & set(view.function.params)
    return {p for p in found if p.endswith("ptr") or p.endswith("_ptrs")} or found


def _bases(view: View, call: ast.Call, stmt: ast.stmt) -> set[str]:
    return tree.reads(view.flow.expand(call.args[0], stmt)) & set(view.function.params)


def _hoisted(view: View, loop: ast.For, moved: list[ast.stmt]) -> Change:
    patch = tree.Patch(view.text)
    elsewhere = [s for s in tree.all_statements(view.body) if not hasattr(s, "body") and s not in moved]
    new = {}
    for stmt in moved:
        pair = tree.assignment(stmt)
        assert pair is not None
        taken = any(pair[0] in tree.writes(s) for s in elsewhere)
        new[pair[0]] = view.fresh(f"{pair[0]}_kept") if taken else pair[0]
    text = "".join(tree.text_of(tree.renamed(s, new)) + "\n" for s in moved)
    patch.before(loop, text)
    for stmt in moved:
        patch.stmt(stmt, "")
    renames = {a: b for a, b in new.items() if a != b}
    for node in ast.walk(loop):
        if isinstance(node, ast.Name) and node.id in renames and view.flow.at(node) not in moved:
            patch.expr(node, renames[node.id])
    loads = sum(len(tree.calls(s, "load")) for s in moved)
    why = f"{loads} loads that every iteration repeats are done once, before the loop."
    return Change(replaced(view, patch.text()), why)
