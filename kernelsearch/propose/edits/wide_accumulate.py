"""Wider accumulation: 16-bit accumulators and sums of 16-bit loads become float32."""

from __future__ import annotations

import ast

from kernelsearch.core.types import TensorFact
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit


class WideAccumulate(Edit):
    summary = "float32 accumulators and operands of reductions in place of 16-bit ones"
    refusal = "nothing accumulates in 16 bits"

    def change(self, view: View) -> Changes:
        patch = tree.Patch(view.text)
        for call in tree.calls(view.node, "zeros", "full", "dot"):
            at = {"zeros": 1, "full": 2}.get(tree.callee(call).rpartition(".")[2])
            dtype = tree.argument(call, at, "out_dtype" if at is None else "dtype")
            if dtype is not None and tree.text_of(dtype) in ("tl.float16", "tl.bfloat16"):
                patch.replace_expr(dtype, "tl.float32")
        dots = tree.reads(tree.calls(view.node, "dot"))
        narrow = _narrow_pointers(view)
        for stmt in tree.all_statements(view.body):
            pair = tree.assignment(stmt)
            if pair is None or not isinstance(stmt, ast.Assign) or not tree.is_tl(pair[1], "load") or pair[0] in dots:
                continue
            bases = tree.reads(view.flow.expand(pair[1].args[0], stmt))  # type: ignore[attr-defined]
            if bases & narrow and pair[0] in tree.reads(tree.calls(view.node, "sum")):
                patch.replace_expr(pair[1], f"{tree.text_of(pair[1])}.to(tl.float32)")
        if not patch.is_empty:
            yield view.rewrite(patch, "Sums are kept in float32: no rounding to 16 bits on the way.")


def _narrow_pointers(view: View) -> set[str]:
    """Pointer arguments that are 16-bit floats in some known launch."""
    args = [(n, v) for launch in view.launches if launch.site == view.function.name for n, v in launch.args.items()]
    return {n for n, v in args if isinstance(v, TensorFact) and v.is_half}
