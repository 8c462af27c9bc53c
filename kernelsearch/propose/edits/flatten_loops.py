"""Flattened loop nests: a persistent loop and the loop inside it become one, so loads run ahead across tiles."""

from __future__ import annotations

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit
from kernelsearch.propose.edits.loop_stages import add_option, find_loops_without


class FlattenLoops(Edit):
    summary = "tl.range(..., flatten=True) on a loop that holds exactly one loop"
    refusal = "no loop holds exactly one loop with a dot"

    def change(self, view: View) -> Changes:
        for loop in find_loops_without(view, "flatten"):
            inner = [one for one in tree.loops(loop.body) if tree.callee(one.iter) != "tl.static_range"]
            special = any(k.arg == "warp_specialize" for one in (loop, *inner) for k in tree.loop_options(one))
            if not special and len(inner) == 1 and inner[0] in loop.body and tree.calls(inner[0], "dot"):
                why = "The two loops run as one, so that loads run ahead across tiles."
                yield view.rewrite(add_option(view, [loop], "flatten", "True"), why)
                return
