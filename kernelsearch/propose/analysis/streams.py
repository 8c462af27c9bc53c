"""Streamed accesses: which blocks no other program reads, so that caches need not keep them."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import dependent, touches
from kernelsearch.propose.analysis.view import View


def streamed(view: View) -> list[ast.Call]:
    """Loads of blocks whose address depends on every id of the program: no other program reads them.

    Of several loads of one pointer argument only the last in the text counts: the others are read again.
    """
    ids = _ids(view)
    last: dict[str, ast.Call] = {}
    for call in tree.calls(view.node, "load"):
        pointer = tree.argument(call, 0, "pointer")
        if pointer is None or view.shapes.of(pointer) == () or not ids:
            continue
        if not all(touches(pointer, names) or (axis is not None and _own(pointer, axis)) for axis, names in ids):
            continue
        bases = sorted(tree.reads(view.flow.expand(pointer, view.flow.at(call))) & set(view.function.params))
        last[next((b for b in bases if b.endswith("ptr")), bases[0] if bases else "")] = call
    return list(last.values())


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
            made = [(p[0], s.lineno) for p, s in pairs if tree.text_of(p[1]).startswith(parts)]
            if len(made) > 1:
                return _apart(view, [m[0] for m in made], {m[1] for m in made})
    return [(axis, _depending(view, axis)) for axis in view.axes]


def _apart(view: View, names: list[str], skip: set[int]) -> list[tuple[int | None, set[str]]]:
    class Gone(ast.NodeTransformer):
        def visit_Assign(self, node: ast.Assign) -> ast.AST:
            return ast.Pass() if node.lineno in skip else node

    body = [Gone().visit(s) for s in tree.function_of(view.text).body]
    return [(None, dependent(body, {name}, control=False)) for name in names]


def _own(node: ast.AST, axis: int) -> bool:
    return any(_axis_of(c) == axis for c in tree.calls(node, "program_id"))


def _axis_of(call: ast.Call) -> object:
    axis = tree.argument(call, 0, "axis")
    return axis.value if isinstance(axis, ast.Constant) else None


def _depending(view: View, axis: int) -> set[str]:
    roots = set()
    for stmt in tree.all_statements(view.body):
        head = stmt.iter if isinstance(stmt, ast.For) else stmt if not hasattr(stmt, "body") else None
        if head is not None and _own(head, axis):
            roots |= tree.writes(stmt.target if isinstance(stmt, ast.For) else stmt)
    return dependent(view.body, roots, control=False)


def with_keyword(call: ast.Call, name: str, value: str) -> str:
    parts = [tree.text_of(a) for a in call.args] + [f"{k.arg}={tree.text_of(k.value)}" for k in call.keywords]
    return f'{tree.called(call)}({", ".join(parts)}, {name}="{value}")'


def hinted(view: View, some: list[ast.Call], name: str, value: str) -> str:
    """The function's text with one keyword more on these calls."""
    patch = tree.Patch(view.text)
    for call in some:
        patch.expr(call, with_keyword(call, name, value))
    return patch.text()


def unhinted(call: ast.Call) -> bool:
    """Whether a call has neither hint: ptxas refuses an eviction policy together with a cache modifier."""
    return all(tree.argument(call, None, name) is None for name in ("eviction_policy", "cache_modifier"))
