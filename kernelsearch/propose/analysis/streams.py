"""Streamed accesses: blocks that no other program reads, so caches need not keep them."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import find_dependent, touches
from kernelsearch.propose.analysis.view import View


def find_streamed_loads(view: View) -> list[ast.Call]:
    """Loads, without hints yet, of blocks whose address depends on every id of the program: no other reads them.

    Of several loads of one pointer argument only those of the last pass in the text count: what the others load is
    read again. A pass may be several loops, each of which goes on where the one before ends.
    """
    ids, passes = _ids(view), _list_passes(view)
    last: dict[str, list[ast.Call]] = {}
    for call in tree.calls(view.node, "load"):
        pointer = tree.argument(call, 0, "pointer")
        if pointer is None or view.shapes.of(pointer) == () or not ids:
            continue
        if not all(touches(pointer, names) or (axis is not None and _own(pointer, axis)) for axis, names in ids):
            continue
        bases = sorted(tree.reads(view.flow.expand(pointer, view.flow.at(call))) & view.pointers)
        same = last.setdefault(bases[0] if bases else "", [])
        if same and not any(same[-1] in together and call in together for together in passes):
            same.clear()
        same.append(call)
    return [call for calls in last.values() for call in calls if has_no_hint(call)]


def _list_passes(view: View) -> list[list[ast.Call]]:
    """The loads of loops that follow each other and go on where the one before ends."""
    passes: list[list[ast.Call]] = []
    for block in tree.blocks(view.body):
        before: set[str] = set()
        for stmt in block:
            bounds = tree.range_of(stmt) if isinstance(stmt, ast.For) else None
            stop = tree.reads(bounds[1]) if bounds else set()
            if bounds and before and before <= tree.reads(bounds[0]):
                passes[-1] += tree.calls(stmt, "load")
            elif bounds:
                passes.append(list(tree.calls(stmt, "load")))
            before = stop
    return passes


def _ids(view: View) -> list[tuple[int | None, set[str]]]:
    """The names that depend on each id of a program: on each grid axis, or on each id that is made from one axis.

    The ids of a swizzled or a persistent program are made together; each counts from there on its own.
    """
    for stmt in tree.all_statements(view.body):
        if isinstance(stmt, ast.Assign) and tree.is_tl(stmt.value, "swizzle2d"):
            return _apart(view, sorted(tree.writes(stmt)), {stmt.lineno})
    for loop in tree.loops(view.body):
        if isinstance(loop.target, ast.Name) and _own(loop.iter, 0):
            pairs = [(p, s) for s in loop.body if (p := tree.assignment(s)) is not None]
            parts = (f"{loop.target.id} %", f"{loop.target.id} //")
            lines = {p[0]: s.lineno for p, s in pairs if tree.text_of(p[1]).startswith(parts)}
            if len(lines) > 1:
                return _apart(view, list(lines), set(lines.values()))
    return [(axis, _depending(view, axis)) for axis in view.axes]


def _apart(view: View, names: list[str], skip: set[int]) -> list[tuple[int | None, set[str]]]:
    """For each name what depends on it, when the statements in the lines skip, which assign the names, are left out."""
    gone = lambda n: ast.Pass() if isinstance(n, ast.Assign) and n.lineno in skip else None  # noqa: E731
    body = [tree.transform(s, gone) for s in tree.function_of(view.text).body]
    return [(None, find_dependent(body, {name}, control=False)) for name in names]


def _own(node: ast.AST, axis: int) -> bool:
    """Whether node has the program id of this axis."""
    return any(tree.program_axis(c) == axis for c in tree.calls(node, "program_id"))


def _depending(view: View, axis: int) -> set[str]:
    """Names that depend on the program id of this axis."""
    roots = set()
    for stmt in tree.all_statements(view.body):
        if isinstance(stmt, ast.For) and _own(stmt.iter, axis):
            roots |= tree.writes(stmt.target)
        elif not hasattr(stmt, "body") and _own(stmt, axis):
            roots |= tree.writes(stmt)
    return find_dependent(view.body, roots, control=False)


def add_hints(view: View, calls: list[ast.Call], name: str, value: str) -> tree.Patch:
    """The function with one more keyword, a string, on these calls."""
    patch = tree.Patch(view.text)
    for call in calls:
        patch.replace_expr(call, tree.with_keyword(call, name, f'"{value}"'))
    return patch


def has_no_hint(call: ast.Call) -> bool:
    """Whether a call has neither hint: ptxas refuses an eviction policy together with a cache modifier."""
    return all(tree.argument(call, None, name) is None for name in ("eviction_policy", "cache_modifier"))
