"""Reciprocal for division: a block divided by a scalar becomes a block times the scalar's reciprocal."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.shapes import Shape
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced


class Reciprocal(FunctionEdit):
    name = "reciprocal"
    summary = "block / scalar becomes block * (1 / scalar)"

    def change(self, view: View) -> list[Change]:
        patch = tree.Patch(view.text)
        found = 0
        for node in ast.walk(view.node):
            if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)):
                continue
            if _wider(view.shapes.of(node.left), view.shapes.of(node.right)) and _outermost(view, node):
                left = tree.parenthesised(tree.text_of(node.left))
                right = tree.parenthesised(tree.text_of(node.right))
                product = f"{left} * (1.0 / {right})"
                patch.expr(node, f"({product})" if _inside_expression(view, node) else product)
                found += 1
        if not found:
            raise CannotApply("no block is divided by a scalar or by a smaller block")
        return [Change(replaced(view, patch.text()), "One division per row and a multiplication per element.")]


def _wider(left: Shape, right: Shape) -> bool:
    """Whether the divisor has fewer elements than the block, whatever the sizes."""
    if left is None or right is None or not left:
        return False
    if right == ():
        return True
    fits = len(left) == len(right) and all(r in (d, "1") for d, r in zip(left, right, strict=True))
    return fits and left != right


def _outermost(view: View, node: ast.BinOp) -> bool:
    """A division inside another one that is rewritten waits for the next time."""
    for other in ast.walk(view.node):
        if other is not node and isinstance(other, ast.BinOp) and isinstance(other.op, ast.Div):
            inside = any(n is node for n in ast.walk(other))
            if inside and _wider(view.shapes.of(other.left), view.shapes.of(other.right)):
                return False
    return True


def _inside_expression(view: View, node: ast.expr) -> bool:
    return not any(isinstance(s, ast.Assign) and s.value is node for s in tree.all_statements(view.body))
