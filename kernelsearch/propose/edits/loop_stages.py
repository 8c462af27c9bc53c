"""Software pipelining of one loop: `range` becomes `tl.range(..., num_stages=STAGES)`."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, Edit

STAGES = (1, 2, 3, 4, 5)


def with_option(loop: ast.For, option: str, value: str) -> str:
    """The loop's iterator as `tl.range` with one more option."""
    call = loop.iter
    assert isinstance(call, ast.Call)
    return tree.with_keyword(ast.Call(tree.expression("tl.range"), call.args, call.keywords), option, value)


def plain_loops(view: View, option: str) -> list[ast.For]:
    """Innermost loops over `range` or `tl.range` that do not have the option yet."""
    ranges = [loop for loop in tree.loops(view.body) if tree.callee(loop.iter) in ("range", "tl.range")]
    innermost = [loop for loop in ranges if tree.range_of(loop) is not None and not tree.loops(loop.body)]
    return [loop for loop in innermost if all(k.arg != option for k in tree.loop_options(loop))]


class LoopStages(Edit):
    name = "loop_stages"
    summary = "num_stages of the loops that load, so that loads run ahead"

    def change(self, view: View) -> list[Change]:
        loops = [loop for loop in plain_loops(view, "num_stages") if tree.calls(loop, "load")]
        if not loops:
            raise CannotApply("no innermost loop with loads lacks num_stages")
        stages = view.fresh_name("STAGES")
        patch = tree.Patch(view.text)
        for loop in loops:
            patch.replace_expr(loop.iter, with_option(loop, "num_stages", stages))
        patch.add_param(f"{stages}: tl.constexpr")
        kernel = view.rewrite(patch.text(), space={stages: STAGES}, config={stages: 2})
        return [Change(kernel, f"Loads run {stages} iterations ahead of the arithmetic that needs them.")]
