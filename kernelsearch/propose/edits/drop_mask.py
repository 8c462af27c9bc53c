"""Masks dropped where a size divides: a comparison becomes constant true under a constexpr that the launch computes.

`(offsets < size) | EVEN` with EVEN true folds to a constant mask, and Triton then drops the mask itself.
"""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.bounds import always_true_when, comparisons
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced


class DropMask(FunctionEdit):
    name = "drop_mask"
    summary = "masks that a constexpr turns off where the size divides"

    def change(self, view: View) -> list[Change]:
        found: dict[str, list] = {}
        for node in comparisons(view):
            condition = always_true_when(view, node)
            if condition is not None and not _guarded(view, node):
                found.setdefault(condition, []).append(node)
        if not found:
            raise CannotApply("no mask compares offsets with a size that could divide")
        patch = tree.Patch(view.text)
        args = {}
        for condition, nodes in found.items():
            even = view.fresh("EVEN")
            args[even] = condition
            patch.param(f"{even}: tl.constexpr")
            for node in nodes:
                patch.expr(node, f"(({tree.text_of(node)}) | {even})")
        kernel = replaced(view, patch.text(), args=args)
        return [Change(kernel, f"Where {' and '.join(found)} the masks vanish, and accesses are whole vectors.")]


def _guarded(view: View, node: object) -> bool:
    """Whether the comparison is in an `| EVEN` already."""
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.BitOr) and n.left is node for n in ast.walk(view.node))
