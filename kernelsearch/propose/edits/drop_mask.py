"""Masks dropped where a size divides: a constexpr that the launch computes makes a comparison constant true.

`(offsets < size) | EVEN` with EVEN true folds to a constant mask, and Triton then drops the mask itself.
"""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.bounds import comparisons, find_true_condition
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, Edit


class DropMask(Edit):
    name = "drop_mask"
    summary = "masks that a constexpr turns off where the size divides"

    def change(self, view: View) -> list[Change]:
        by_condition: dict[str, list[ast.Compare]] = {}
        for node in comparisons(view):
            condition = find_true_condition(view, node)
            if condition is not None:
                by_condition.setdefault(condition, []).append(node)
        if not by_condition:
            raise CannotApply("no mask compares offsets with a size that could divide")
        patch = tree.Patch(view.text)
        args = {}
        for condition, nodes in by_condition.items():
            even = view.fresh_name("EVEN")
            args[even] = condition
            patch.add_param(f"{even}: tl.constexpr")
            for node in nodes:
                patch.replace_expr(node, f"(({tree.text_of(node)}) | {even})")
        kernel = view.rewrite(patch.text(), args=args)
        return [Change(kernel, f"Where {' and '.join(by_condition)} the masks vanish, and accesses are whole vectors.")]
