"""Bodies that run once per program, wrapped so that one program runs several of them in a loop."""

from __future__ import annotations

import ast
import copy

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import ACCESSES, OTHER
from kernelsearch.propose.analysis.view import NotApplicable, View, refuse_if


def make_repeatable(view: View) -> list[ast.stmt]:
    """The body in a form that may run several times: each parameter that it assigns is copied to a local name first.

    Raises NotApplicable if there is no such form.
    """
    helpers = [f for f in view.kernel.functions if f.name not in view.kernel.entries]
    if any("program_id" in f.text or "num_programs" in f.text for f in helpers):
        raise NotApplicable("a helper function asks for its program id")
    view.must_only({*ACCESSES, OTHER}, view.body)
    for loop in (s for s in tree.all_statements(view.body) if isinstance(s, ast.While)):
        view.must_only(ACCESSES, loop, "a loop that may wait for other programs")
    refuse_if(not view.axes or not tree.calls(view.node, "program_id"), "it has no program id")
    heads = [view.flow.expand(s.iter, s) for s in view.body if isinstance(s, ast.For)]
    in_order = [n for call in tree.calls(view.node, "swizzle2d") for n in tree.calls(call, "num_programs")]
    if any(tree.calls(head, "program_id") for head in heads) or len(tree.calls(view.node, "num_programs")) > len(
        in_order
    ):
        raise NotApplicable("it loops over programs already")
    changed = [p for p in view.function.params if p in tree.writes(view.body)]
    refuse_if(any(p in view.function.constexprs for p in changed), "it assigns to a constexpr")
    local = {p: view.fresh_name(f"{p}_here") for p in changed}
    copies = tree.statements("\n".join(f"{local[p]} = {p}" for p in changed))
    return [*copies, *(tree.rename(s, local) for s in view.body)]


def replace_ids(body: list[ast.stmt], ids: dict[int, str], counts: dict[int, str]) -> list[ast.stmt]:
    """The statements with program ids and program counts replaced by expressions, by axis."""

    def rule(node: ast.AST) -> ast.AST | None:
        axis = tree.program_axis(node)
        return None if axis is None else tree.expression((ids if tree.is_tl(node, "program_id") else counts)[axis])

    fresh = [tree.transform(copy.deepcopy(s), rule) for s in body]
    return [s for s in fresh if not tree.does_nothing(s)]


def own_name(view: View, axis: int, base: str) -> str:
    """The name that the body gives to a program id by its only assignment, or a fresh one."""
    for stmt in view.body:
        pair = tree.assignment(stmt)
        if pair is None or not isinstance(stmt, ast.Assign) or not tree.is_tl(pair[1], "program_id"):
            continue
        if tree.program_axis(pair[1]) == axis and tree.is_assigned_once(view.body, pair[0]):
            return pair[0]
    return view.fresh_name(base)
