"""tf32 matrix products where the task's precision contract allows them."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, Edit


class DotPrecision(Edit):
    name = "dot_precision"
    summary = 'input_precision="tf32" on dots, if the task allows tf32'

    def change(self, view: View) -> list[Change]:
        if "tf32" not in view.task.precision:
            raise CannotApply(f"the task's precision is {view.task.precision}")
        precisions = [tree.argument(call, None, "input_precision") for call in tree.calls(view.node, "dot")]
        ieee = [p for p in precisions if isinstance(p, ast.Constant) and p.value == "ieee"]
        if not ieee:
            raise CannotApply('no dot has input_precision="ieee"')
        patch = tree.Patch(view.text)
        for precision in ieee:
            patch.replace_expr(precision, '"tf32"')
        return [Change(view.rewrite(patch.text()), "float32 products run on the tensor cores in tf32.")]
