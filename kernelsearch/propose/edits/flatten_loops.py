"""Flattened loop nests: a persistent loop and the loop inside it become one, so loads run ahead across tiles."""

from __future__ import annotations

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, Edit
from kernelsearch.propose.edits.loop_stages import with_option


class FlattenLoops(Edit):
    name = "flatten_loops"
    summary = "tl.range(..., flatten=True) on a loop that holds exactly one loop"

    def change(self, view: View) -> list[Change]:
        for loop in tree.loops(view.body):
            inner = tree.loops(loop.body)
            known = tree.callee(loop.iter) in ("range", "tl.range") and tree.range_of(loop) is not None
            if not known or len(inner) != 1 or inner[0] not in loop.body:
                continue
            if any(k.arg == "flatten" for k in tree.loop_options(loop)) or not tree.calls(inner[0], "dot"):
                continue
            patch = tree.Patch(view.text)
            patch.replace_expr(loop.iter, with_option(loop, "flatten", "True"))
            why = "The two loops run as one, so that loads run ahead across tiles."
            return [Change(view.rewrite(patch.text()), why)]
        raise CannotApply("no loop holds exactly one loop with a dot")
