"""One accumulator per lane: a reduction inside a loop moves behind it, the loop only adds block to block."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import COMBINE, Update, full, is_float32, reduction_of, update_of
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced


class LaneAccumulator(FunctionEdit):
    name = "lane_accumulator"
    summary = "one accumulator per lane, the reduction hoisted out of the loop"

    def change(self, view: View) -> list[Change]:
        found = [(loop, u) for loop in tree.loops(view.body) for u in _updates(view, loop)]
        if not found:
            raise CannotApply("no loop folds a reduction of a block into a float32 accumulator")
        sets = [found] if len(found) == 1 else [found, *[[one] for one in found]]
        lanes = {id(u.stmt): view.fresh(f"{u.name}_lanes") for _, u in found}
        return [self._hoisted(view, some, lanes) for some in sets]

    def _hoisted(self, view: View, some: list[tuple[ast.For, Update]], fresh: dict[int, str]) -> Change:
        patch = tree.Patch(view.text)
        names = []
        for loop, update in some:
            call = reduction_of(update.value, update.kind)
            assert call is not None
            lanes = fresh[id(update.stmt)]
            names.append(update.name)
            operand = call.args[0]
            shape = view.shapes.of(operand)
            assert shape
            block = tree.text_of(operand)
            patch.before(loop, f"{lanes} = {full(shape, update.kind)}\n")
            step = COMBINE[update.kind].format(a=lanes, b=tree.parenthesised(block))
            patch.stmt(update.stmt, f"{lanes} = {step}\n")
            whole = tree.text_of(_with_operand(call, lanes))
            patch.after(loop, f"{update.name} = {COMBINE[update.kind].format(a=update.name, b=whole)}\n")
        why = f"The loop keeps one accumulator per lane for {', '.join(dict.fromkeys(names))}: one reduction in all."
        return Change(replaced(view, patch.text()), why)


def _with_operand(call: ast.Call, name: str) -> ast.Call:
    return ast.Call(call.func, [ast.Name(name, ast.Load()), *call.args[1:]], call.keywords)


def _updates(view: View, loop: ast.For) -> list[Update]:
    """The loop's own updates whose reduction can wait until the loop is over."""
    good = []
    for stmt in loop.body:
        update = update_of(stmt)
        call = update and reduction_of(update.value, update.kind)
        if not update or not call or not view.shapes.of(call.args[0]):
            continue
        others = [s for s in loop.body if s is not stmt]
        if update.name in tree.reads(others) | tree.writes(others) | tree.reads(loop.iter):
            continue
        start = view.flow.value(update.name, loop) or _last_before(view, loop, update.name)
        if start is None or not is_float32(start[0]) or tree.loops(loop.body):
            continue
        good.append(update)
    return good


def _last_before(view: View, loop: ast.For, name: str) -> tuple[ast.expr, ast.stmt] | None:
    """The plain assignment of name nearest before the loop in its own block."""
    block = view.flow.paths[id(loop)][-1][0]
    for stmt in reversed(block[: block.index(loop)]):
        if name in tree.writes(stmt):
            pair = tree.assignment(stmt)
            return (pair[1], stmt) if pair and not isinstance(stmt, ast.AugAssign) else None
    return None
