"""tf32 matrix products where the task's precision contract allows them."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced


class DotPrecision(FunctionEdit):
    name = "dot_precision"
    summary = 'input_precision="tf32" on dots, if the task allows tf32'

    def change(self, view: View) -> list[Change]:
        if "tf32" not in view.task.precision:
            raise CannotApply(f"the task's precision is {view.task.precision}")
        patch = tree.Patch(view.text)
        found = 0
        for call in tree.calls(view.node, "dot"):
            given = tree.argument(call, None, "input_precision")
            if isinstance(given, ast.Constant) and given.value == "ieee":
                patch.expr(given, '"tf32"')
                found += 1
        if not found:
            raise CannotApply('no dot has input_precision="ieee"')
        return [Change(replaced(view, patch.text()), "float32 products run on the tensor cores in tf32.")]
