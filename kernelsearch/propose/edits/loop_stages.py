"""Software pipelining of one loop: `range` becomes `tl.range(..., num_stages=STAGES)`."""

from __future__ import annotations

import ast
from collections.abc import Callable

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.effects import ACCESSES
from kernelsearch.propose.analysis.tile_order import find_accessed, may_meet
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit


def add_option(
    view: View, loops: list[ast.For], option: str, value: str, rewrite: Callable[[ast.For], ast.For] = lambda loop: loop
) -> tree.Patch:
    """The function with `tl.range` and one more option as the iterator of these loops, each rewritten before."""
    patch = tree.Patch(view.text)
    for loop in loops:
        patch.replace_expr(loop.iter, with_option(rewrite(loop), option, value))
    return patch


def with_option(loop: ast.For, option: str, value: str) -> str:
    """The loop's iterator as `tl.range` with one more option."""
    assert isinstance(loop.iter, ast.Call)
    return tree.with_keyword(ast.Call(tree.expression("tl.range"), loop.iter.args, loop.iter.keywords), option, value)


def find_loops_without(view: View, option: str) -> list[ast.For]:
    """Loops over `range` or `tl.range` that do not have the option yet."""
    ranges = [loop for loop in tree.loops(view.body) if tree.callee(loop.iter) in ("range", "tl.range")]
    counted = [loop for loop in ranges if tree.range_of(loop) is not None]
    return [loop for loop in counted if all(k.arg != option for k in tree.loop_options(loop))]


class LoopStages(Edit):
    summary = "num_stages of the loops that load, so that loads run ahead"
    refusal = "no innermost loop with loads lacks num_stages"

    def change(self, view: View) -> Changes:
        plain = find_loops_without(view, "num_stages")
        inner = (loop for loop in plain if not tree.loops(loop.body) and tree.calls(loop, "load"))
        # Loads run ahead of stores: no turn may load what one before it stored.
        if loops := [i for i in inner if view.does_only(ACCESSES, i) and not may_meet(*find_accessed(view, i))]:
            stages = view.fresh_name("STAGES")
            patch = add_option(view, loops, "num_stages", stages)
            why = f"Loads run {stages} iterations ahead of the arithmetic that needs them."
            yield view.rewrite(patch, why, tunables={stages: ((1, 2, 3, 4, 5), 2)})
