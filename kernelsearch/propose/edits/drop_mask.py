"""Masks dropped where a size divides: a constexpr that the launch computes makes a comparison constant true.

`(offsets < size) | EVEN` with EVEN true folds to a constant mask, and Triton then drops the mask itself.
"""

from __future__ import annotations

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.bounds import comparisons, find_true_condition
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit


class DropMask(Edit):
    summary = "masks that a constexpr turns off where the size divides"
    refusal = "no mask compares offsets with a size that could divide"

    def change(self, view: View) -> Changes:
        patch = tree.Patch(view.text)
        flags: dict[str, str] = {}  # by condition
        for node in comparisons(view):
            condition = find_true_condition(view, node)
            if condition is not None:
                flag = flags.get(condition) or flags.setdefault(condition, view.fresh_name("EVEN"))
                patch.replace_expr(node, f"(({tree.text_of(node)}) | {flag})")
        if flags:
            why = f"Where {' and '.join(flags)} the masks vanish, and accesses are whole vectors."
            yield view.rewrite(patch, why, flags={flag: condition for condition, flag in flags.items()})
