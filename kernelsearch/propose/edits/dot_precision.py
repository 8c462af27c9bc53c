"""tf32 matrix products where the task's precision contract allows them."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import Changes, View, refuse_if
from kernelsearch.propose.edits.base import Edit


class DotPrecision(Edit):
    summary = 'input_precision="tf32" on dots, if the task allows tf32'
    refusal = 'no dot has input_precision="ieee"'

    def change(self, view: View) -> Changes:
        refuse_if("tf32" not in view.task.precision, f"the task's precision is {view.task.precision}")
        patch = tree.Patch(view.text)
        for call in tree.calls(view.node, "dot"):
            precision = tree.argument(call, None, "input_precision")
            if isinstance(precision, ast.Constant) and precision.value == "ieee":
                patch.replace_expr(precision, '"tf32"')
        if not patch.is_empty:
            yield view.rewrite(patch, "float32 products run on the tensor cores in tf32.")
