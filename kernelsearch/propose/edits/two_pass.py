"""Two passes for online statistics: one loop for the maximum, one for the sum, where one rescaled loop did both.

The inverse of `online`: reads the data twice, computes one exponential an element and no rescaling.
"""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import reduction_of, update_of
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced


class TwoPass(FunctionEdit):
    name = "two_pass"
    summary = "a loop for the maximum and a loop for the sum, in place of one rescaled loop"

    def change(self, view: View) -> list[Change]:
        for loop in tree.loops(view.body):
            found = _online(loop)
            if found is not None:
                return [_parted(view, loop, *found)]
        raise CannotApply("no loop keeps a rescaled sum of exponentials and nothing else")


def _online(loop: ast.For) -> tuple[str, str, ast.Call, str] | None:
    """(maximum, sum, the reduction of the maximum, the fresh sum's text) of a loop in the form that `online` writes."""
    if len(loop.body) < 4 or tree.range_of(loop) is None:
        return None
    new, safe, total, last = (tree.assignment(s) for s in loop.body[-4:])
    if not (new and safe and total and last) or not isinstance(loop.body[-4], ast.Assign):
        return None
    m, s = last[0], total[0]
    if tree.text_of(last[1]) != new[0]:
        return None
    running = update_of(ast.Assign([ast.Name(m, ast.Store())], new[1], lineno=1))
    top = reduction_of(running.value, "max") if running and running.kind == "max" else None
    if top is None or tree.text_of(safe[1]) != f"tl.where({new[0]} == float('-inf'), 0.0, {new[0]})":
        return None
    value = total[1]
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)):
        return None
    if tree.text_of(value.left) != f"{s} * tl.exp({m} - {safe[0]})":
        return None
    whole = reduction_of(value.right, "sum")
    exponent = f"tl.exp({tree.parenthesised(tree.text_of(top.args[0]))} - {safe[0]})"
    if whole is None or tree.text_of(whole.args[0]) != tree.text_of(tree.expression(exponent)):
        return None
    before = loop.body[:-4]
    if {m, s, new[0], safe[0]} & (tree.reads(before) | tree.writes(before)):
        return None
    if any(isinstance(x, (ast.Expr, ast.If, ast.For, ast.While)) for x in before):
        return None
    carried = tree.writes(before) & _read_first(before)
    return None if carried else (m, s, top, tree.text_of(tree.substituted(whole, {safe[0]: ast.Name(m, ast.Load())})))


def _read_first(body: list[ast.stmt]) -> set[str]:
    seen: set[str] = set()
    first: set[str] = set()
    for stmt in body:
        first |= tree.reads(stmt) - seen
        seen |= tree.writes(stmt)
    return first


def _parted(view: View, loop: ast.For, m: str, s: str, top: ast.Call, fresh: str) -> Change:
    head = f"for {tree.text_of(loop.target)} in {tree.text_of(loop.iter)}:\n"
    common = "".join(tree.text_of(x) + "\n" for x in loop.body[:-4])
    first = common + f"{m} = tl.maximum({m}, {tree.text_of(top)})\n"
    second = common + f"{s} += {fresh}\n"
    text = "".join(head + "".join("    " + line + "\n" for line in part.splitlines()) for part in (first, second))
    patch = tree.Patch(view.text)
    patch.stmt(loop, text)
    why = "The maximum is known before the sum: one exponential an element, no rescaling."
    return Change(replaced(view, patch.text()), why)
