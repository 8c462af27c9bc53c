"""Loop-invariant loads out of loops: values that every iteration loads again are loaded once, before the loop.

The compiler hoists arithmetic itself, but no loads past stores; so the edit moves loads, together with the
statements that their addresses and masks need.
"""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import Change, Changes, View
from kernelsearch.propose.edits.base import Edit


class HoistInvariant(Edit):
    summary = "loop-invariant loads (and what they need) out of loops"
    refusal = "no load in a loop is the same in every iteration"

    def change(self, view: View) -> Changes:
        for loop in tree.loops(view.body):
            moved = _invariant(view, loop)
            if any(tree.calls(s, "load") for s in moved):
                yield _hoisted(view, loop, moved)


def _stored(view: View) -> set[str]:
    """Parameters whose memory the function writes, directly or through names."""
    names: set[str] = set()
    for call in tree.calls(view.node, "store", "atomic_add", "atomic_max", "atomic_min", "atomic_xchg", "atomic_cas"):
        names |= tree.reads(call.args[0])
    pairs = [pair for s in tree.all_statements(view.body) if (pair := tree.assignment(s))]
    before = 0
    while len(names) > before:
        before = len(names)
        names |= tree.reads([value for target, value in pairs if target in names])
    return names & _pointers(view)


def _invariant(view: View, loop: ast.For) -> list[ast.stmt]:
    """Statements of the loop's body that give the same result in every iteration, in order."""
    varying, stored = tree.writes(loop), _stored(view)
    plain = _plain_statements(loop.body)
    moved: list[ast.stmt] = []
    for at, stmt in enumerate(loop.body):
        pair = tree.assignment(stmt)
        if pair is None or isinstance(stmt, ast.AugAssign):
            continue
        name, value = pair
        once = sum(name in tree.writes(s) for s in plain) == 1
        early = name in tree.reads([*loop.body[:at], value])
        atomic = any(".atomic" in tree.callee(c) for c in ast.walk(value))
        if not once or early or atomic or tree.reads(value) & varying:
            continue
        if any(_bases(view, load, stmt) & stored for load in tree.calls(value, "load")):
            continue
        moved.append(stmt)
        varying.discard(name)
    return moved


def _plain_statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """All statements but loops and branches."""
    return [s for s in tree.all_statements(body) if not hasattr(s, "body")]


def _bases(view: View, access: ast.Call, stmt: ast.stmt) -> set[str]:
    """Parameters in the address of a load or store."""
    return tree.reads(view.flow.expand(access.args[0], stmt)) & set(view.function.params)


def _pointers(view: View) -> set[str]:
    """Pointer parameters, by name if any is named like one."""
    accesses = tree.calls(view.node, "load", "store")
    params = set().union(*(_bases(view, access, view.flow.at(access)) for access in accesses))
    return {p for p in params if p.endswith(("ptr", "_ptrs"))} or params


def _hoisted(view: View, loop: ast.For, moved: list[ast.stmt]) -> Change:
    """The function with the moved statements before the loop, renamed where a name has other values elsewhere."""
    patch = tree.Patch(view.text)
    elsewhere = tree.writes([s for s in _plain_statements(view.body) if s not in moved])
    names = [tree.assignment(s)[0] for s in moved]  # type: ignore[index]
    new = {name: view.fresh_name(f"{name}_kept") for name in names if name in elsewhere}
    patch.insert_before(loop, "".join(tree.text_of(tree.rename(s, new)) + "\n" for s in moved))
    for stmt in moved:
        patch.replace_stmt(stmt, "")
    for node in ast.walk(loop):
        if isinstance(node, ast.Name) and node.id in new and view.flow.at(node) not in moved:
            patch.replace_expr(node, new[node.id])
    loads = sum(len(tree.calls(s, "load")) for s in moved)
    why = f"{loads} loads that every iteration repeats are done once, before the loop."
    return view.rewrite(patch, why)
