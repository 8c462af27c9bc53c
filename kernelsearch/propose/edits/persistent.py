"""Persistent programs: a grid of a few programs per multiprocessor, each looping over its share of the work."""

from __future__ import annotations

import ast
import copy

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import ACCESSES, OTHER
from kernelsearch.propose.analysis.view import Changes, NotApplicable, View, refuse_if
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.tensor_descriptor import NOT_AHEAD


class Persistent(Edit):
    summary = "a grid of at most num_sms * WAVES programs that loop over the work"

    def change(self, view: View) -> Changes:
        body = make_repeatable(view)
        axes = view.axes
        counts = {a: view.fresh_name("n_programs" if len(axes) == 1 else f"n_programs_{a}") for a in axes}
        waves = view.fresh_name("WAVES")
        head = ""
        if len(axes) == 1:
            item = own_name(view, axes[0], "program")
            ids = {axes[0]: item}
        else:
            rest = item = view.fresh_name("program")
            ids = {a: own_name(view, a, f"program_{a}") for a in axes}
            for a in axes[:-1]:
                head += f"{ids[a]} = {rest} % {counts[a]}\n"
                rest = f"({rest} // {counts[a]})"
            head += f"{ids[axes[-1]]} = {rest}\n"
        whole = " * ".join(counts.values())
        apart = [s for s in body if _makes_descriptor(view, s)]
        inner = [*tree.statements(head), *replace_ids([s for s in body if s not in apart], ids, counts)]
        ends = f"tl.program_id(0), {whole}, tl.num_programs(0)"
        makes = any(tree.calls(s, "make_tensor_descriptor") for s in inner) and tree.loops(inner)
        turns = f"tl.range({ends}, num_stages={NOT_AHEAD})" if makes else f"range({ends})"
        outer = tree.make_loop(f"for {item} in {turns}", inner)
        yield view.rewrite(
            tree.rebuild(view.node, [*apart, outer]),
            f"At most {waves} programs per multiprocessor loop over the work, so launches are few.",
            args={counts[a]: view.grid[a] for a in axes},
            tunables={waves: ((1, 2, 4, 8, 16), 2)},
            grid=f"(min({' * '.join(view.grid[a] for a in axes)}, num_sms * {waves}),)",
        )


def _makes_descriptor(view: View, stmt: ast.stmt) -> bool:
    """Whether a statement only makes a descriptor that is the same in every program: making it costs memory traffic."""
    while isinstance(stmt, ast.If) and len(stmt.body) == 1 and not stmt.orelse:
        stmt = stmt.body[0]
    pair = tree.assignment(stmt)
    if pair is None or not tree.is_tl(pair[1], "make_tensor_descriptor") or tree.calls(pair[1], "program_id"):
        return False
    return not tree.reads(pair[1]) & tree.writes(view.body)


# ------------------------------------------------------------ bodies made to run several times


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
