"""Loop unrolling: `range` becomes `tl.range(..., loop_unroll_factor=UNROLL)`.

Triton 3.6 counts the iterations of an unrolled loop as an unsigned number: on an H200 a loop whose end lay below its
start, which must not run at all, read and wrote what it liked. So such loops are given an end that is not below.
"""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.loop_stages import add_option, find_loops_without


class LoopUnroll(Edit):
    summary = "loop_unroll_factor on the innermost loops"
    refusal = "no innermost loop without tl.dot lacks loop_unroll_factor"

    def change(self, view: View) -> Changes:
        plain = find_loops_without(view, "loop_unroll_factor")
        if loops := [loop for loop in plain if not tree.loops(loop.body) and not tree.calls(loop, "dot")]:
            unroll = view.fresh_name("UNROLL")
            patch = add_option(view, loops, "loop_unroll_factor", unroll, keep_end_above_start)
            why = f"{unroll} iterations are laid side by side, so that more loads are in flight."
            yield view.rewrite(patch, why, tunables={unroll: ((1, 2, 4, 8), 2)})


def keep_end_above_start(loop: ast.For) -> ast.For:
    """The loop with an end that is not below its start; a start of zero is one that launchers do not go below."""
    low, high, step = map(tree.text_of, tree.range_of(loop))  # type: ignore[arg-type]
    return (
        loop if low == "0" or step.startswith("-") else tree.with_range(loop, low, f"tl.maximum({high}, {low})", step)
    )
