"""Loop unrolling: `range` becomes `tl.range(..., loop_unroll_factor=UNROLL)`."""

from __future__ import annotations

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, Edit
from kernelsearch.propose.edits.loop_stages import plain_loops, with_option

FACTORS = (1, 2, 4, 8)


class LoopUnroll(Edit):
    name = "loop_unroll"
    summary = "loop_unroll_factor on the innermost loops"

    def change(self, view: View) -> list[Change]:
        loops = [loop for loop in plain_loops(view, "loop_unroll_factor") if not tree.calls(loop, "dot")]
        if not loops:
            raise CannotApply("no innermost loop without tl.dot lacks loop_unroll_factor")
        unroll = view.fresh_name("UNROLL")
        patch = tree.Patch(view.text)
        for loop in loops:
            patch.replace_expr(loop.iter, with_option(loop, "loop_unroll_factor", unroll))
        patch.add_param(f"{unroll}: tl.constexpr")
        kernel = view.rewrite(patch.text(), space={unroll: FACTORS}, config={unroll: 2})
        return [Change(kernel, f"{unroll} iterations are laid side by side, so that more loads are in flight.")]
