"""Bodies that run once per program, wrapped so that one program runs several of them in a loop."""

from __future__ import annotations

import ast
import copy

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import CannotApply, View


def repeatable(view: View) -> list[ast.stmt]:
    """The body in a form that may run several times: parameters that it changes become names of its own."""
    helpers = [f for f in view.kernel.functions if f.name not in view.kernel.entries]
    if any("program_id" in f.text or "num_programs" in f.text for f in helpers):
        raise CannotApply("a helper function asks for its program id")
    if any(isinstance(s, ast.Return) for s in tree.all_statements(view.body)):
        raise CannotApply("it returns early")
    if not view.axes or not tree.calls(view.node, "program_id"):
        raise CannotApply("it has no program id")
    walks = [s for s in view.body if isinstance(s, ast.For) and _over_programs(view, s)]
    if walks or tree.calls(view.node, "num_programs"):
        raise CannotApply("it walks over programs already")
    return own_params(view)


def _over_programs(view: View, loop: ast.For) -> bool:
    """Whether a loop starts at a program id."""
    return bool(tree.calls(view.flow.expand(loop.iter, loop), "program_id"))


def own_params(view: View) -> list[ast.stmt]:
    """The body with each parameter that it assigns copied into a name of its own first."""
    changed = [p for p in view.function.params if p in tree.writes(view.body)]
    if any(p in view.function.constexprs for p in changed):
        raise CannotApply("it assigns to a constexpr")
    new = {p: view.fresh(f"{p}_here") for p in changed}
    body = [tree.renamed(s, new) for s in view.body]
    return [*(s for p in changed for s in tree.statements(f"{new[p]} = {p}")), *body]  # type: ignore[list-item]


def with_ids(body: list[ast.stmt], ids: dict[int, str], counts: dict[int, str]) -> list[ast.stmt]:
    """The statements with program ids and program counts replaced by expressions, by axis."""

    class Ids(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            axis = tree.argument(node, 0, "axis")
            if tree.is_tl(node, "program_id") and isinstance(axis, ast.Constant):
                return tree.expression(ids[axis.value])  # type: ignore[index]
            if tree.is_tl(node, "num_programs") and isinstance(axis, ast.Constant):
                return tree.expression(counts[axis.value])  # type: ignore[index]
            return node

    fresh = [Ids().visit(copy.deepcopy(s)) for s in body]
    return [s for s in fresh if not _is_self(s)]


def _is_self(stmt: ast.stmt) -> bool:
    """`row = row`, which a replaced program id leaves behind."""
    return isinstance(stmt, ast.Assign) and len(stmt.targets) == 1 and tree.same(stmt.targets[0], stmt.value)


def own_name(view: View, axis: int, base: str) -> str:
    """The name that the body gives to a program id by a plain assignment, or a fresh one."""
    for stmt in view.body:
        pair = tree.assignment(stmt)
        if pair and tree.is_tl(pair[1], "program_id") and isinstance(stmt, ast.Assign):
            at = tree.argument(pair[1], 0, "axis")  # type: ignore[arg-type]
            once = sum(pair[0] in tree.writes(s) for s in tree.all_statements(view.body)) == 1
            if isinstance(at, ast.Constant) and at.value == axis and once:
                return pair[0]
    return view.fresh(base)


def loop(head: str, body: list[ast.stmt]) -> ast.For:
    """A loop with this head (`for row in range(n)`) around the statements."""
    node = tree.statements(f"{head}:\n    pass")[0]
    assert isinstance(node, ast.For)
    node.body = body
    return node
