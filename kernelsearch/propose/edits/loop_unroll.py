"""Loop unrolling: `range` becomes `tl.range(..., loop_unroll_factor=UNROLL)`."""

from __future__ import annotations

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
            patch = add_option(view, loops, "loop_unroll_factor", unroll)
            why = f"{unroll} iterations are laid side by side, so that more loads are in flight."
            yield view.rewrite(patch, why, tunables={unroll: ((1, 2, 4, 8), 2)})
