"""Two passes for online statistics: one loop for the maximum and one for the sum, instead of one rescaled loop.

The inverse of `online`: reads the data twice, computes one exponential an element and no rescaling.
"""

from __future__ import annotations

import ast
from textwrap import indent

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.accumulate import format_reduction
from kernelsearch.propose.analysis.rescaled_sums import RescaledSum, find_rescaled_sum
from kernelsearch.propose.analysis.view import Change, Changes, View
from kernelsearch.propose.edits.base import Edit


class TwoPass(Edit):
    summary = "a loop for the maximum and a loop for the sum, in place of one rescaled loop"
    refusal = "no loop keeps a rescaled sum of exponentials and nothing else"

    def change(self, view: View) -> Changes:
        for loop in tree.loops(view.body):
            step = find_rescaled_sum(loop)
            if step is None or tree.range_of(loop) is None or not step.is_alone(view.body):
                continue
            if updates := _updates_of(view, step):
                yield _parted(view, step, *updates)
                return


def _updates_of(view: View, step: RescaledSum) -> tuple[str, str] | None:
    """The statements that update the maximum and the sum in two passes."""
    m, s, tile = step.maximum, step.total, tree.text_of(step.highest.args[0])
    before = [x for x in step.loop.body if x not in step.own]
    if any((tree.reads(x) - tree.writes(before[:at])) & tree.writes(before) for at, x in enumerate(before)):
        return None
    expand = step.expand(len(view.shapes.of(step.highest.args[0]) or (0,)))
    if expand is None or any(isinstance(x, ast.Expr) for x in before):
        return None
    fresh = format_reduction(step.summed, step.exponential.format(tree.parenthesise(tile), m + expand))
    return f"{m} = tl.maximum({m}, {tree.text_of(step.highest)})\n", f"{s} += {fresh}\n"


def _parted(view: View, step: RescaledSum, *updates: str) -> Change:
    """The function with one loop for each update."""
    loop = step.loop
    head = f"for {tree.text_of(loop.target)} in {tree.text_of(loop.iter)}:\n"
    common = "".join(tree.text_of(x) + "\n" for x in loop.body if x not in step.own)
    patch = tree.Patch(view.text)
    patch.replace_stmt(loop, "".join(head + indent(common + update, "    ") for update in updates))
    return view.rewrite(patch, "The maximum is known before the sum: one exponential an element, no rescaling.")
