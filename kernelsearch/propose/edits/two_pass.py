"""Two passes for online statistics: one loop for the maximum and one for the sum, instead of one rescaled loop.

The inverse of `online`: reads the data twice, computes one exponential an element and no rescaling.
"""

from __future__ import annotations

import ast
from textwrap import indent

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import format_reduction, reduction_of, update_of
from kernelsearch.propose.analysis.view import Change, Changes, View
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.online import format_rescaling


class TwoPass(Edit):
    summary = "a loop for the maximum and a loop for the sum, in place of one rescaled loop"
    refusal = "no loop keeps a rescaled sum of exponentials and nothing else"

    def change(self, view: View) -> Changes:
        for loop in tree.loops(view.body):
            updates = _online_updates(loop)
            if updates is not None:
                yield _parted(view, loop, *updates)
                return


def _online_updates(loop: ast.For) -> tuple[str, str] | None:
    """The statements that update the maximum and the sum in two passes, for a loop in the form that `online` writes."""
    if len(loop.body) < 4 or tree.range_of(loop) is None or not isinstance(loop.body[-4], ast.Assign):
        return None
    pairs = [tree.assignment(s) for s in loop.body[-4:]]
    if None in pairs:
        return None
    (new, grown), (safe, _), (s, total), (m, _) = pairs  # type: ignore[misc]
    running = update_of(ast.Assign([ast.Name(m, ast.Store())], grown, lineno=1))
    top = reduction_of(running.value, "max") if running and running.kind == "max" else None
    whole = reduction_of(total.right, "sum") if isinstance(total, ast.BinOp) else None
    if top is None or whole is None:
        return None
    exponent = tree.parenthesise(tree.text_of(top.args[0]))
    form = format_rescaling(safe, new, s, m, format_reduction(whole, f"tl.exp({exponent} - {safe})"))
    if [tree.text_of(x) for x in loop.body[-3:]] != [tree.text_of(x) for x in tree.statements(form)]:
        return None
    before = loop.body[:-4]
    if {m, s, new, safe} & (tree.reads(before) | tree.writes(before)):
        return None
    if any(isinstance(x, (ast.Expr, ast.If, ast.For, ast.While)) for x in before):
        return None
    if any((tree.reads(x) - tree.writes(before[:at])) & tree.writes(before) for at, x in enumerate(before)):
        return None
    fresh = format_reduction(whole, f"tl.exp({exponent} - {m})")
    return f"{m} = tl.maximum({m}, {tree.text_of(top)})\n", f"{s} += {fresh}\n"


def _parted(view: View, loop: ast.For, *updates: str) -> Change:
    """The function with one loop for each update."""
    head = f"for {tree.text_of(loop.target)} in {tree.text_of(loop.iter)}:\n"
    common = "".join(tree.text_of(x) + "\n" for x in loop.body[:-4])
    patch = tree.Patch(view.text)
    patch.replace_stmt(loop, "".join(head + indent(common + update, "    ") for update in updates))
    return view.rewrite(patch, "The maximum is known before the sum: one exponential an element, no rescaling.")
