"""Reciprocal for division: a block divided by a scalar becomes a block times the scalar's reciprocal."""

from __future__ import annotations

import ast

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.dtypes import is_floating
from kernelsearch.propose.analysis.flow import Dependence
from kernelsearch.propose.analysis.shapes import Shape
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit

STEPS = frozenset("floor ceil rint round trunc nearbyint argmax argmin sort topk".split())
"""Functions whose result jumps where their argument moves by little."""


class Reciprocal(Edit):
    summary = "block / scalar becomes block * (1 / scalar)"
    refusal = "no block of floating point is divided by a scalar or by a smaller block, and then only scaled or stored"

    def change(self, view: View) -> Changes:
        divisions = [n for n in ast.walk(view.node) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
        divisions = [n for n in divisions if _wider(view.shapes.of(n.left), view.shapes.of(n.right))]
        divisions = [n for n in divisions if is_floating(view, n.left) and not _shows_rounding(view, n)]
        nested = {n for division in divisions for n in ast.walk(division) if n is not division}
        values = [s.value for s in tree.all_statements(view.body) if isinstance(s, ast.Assign)]
        patch = tree.Patch(view.text)
        for node in divisions:
            if node not in nested:  # a division inside another one waits for the next time
                left, right = (tree.parenthesise(tree.text_of(side)) for side in (node.left, node.right))
                product = f"{left} * (1.0 / {right})"
                patch.replace_expr(node, product if node in values else f"({product})")
        if divisions:
            yield view.rewrite(patch, "One division per row and a multiplication per element.")


def _shows_rounding(view: View, division: ast.BinOp) -> bool:
    """Whether a last bit of the quotient may decide more: it is made an integer, compared or subtracted."""
    text = tree.text_of(division)
    quotient = Dependence(view.body, lambda n: isinstance(n, ast.BinOp) and tree.text_of(n) == text)
    facts = [(name, getattr(fact, "dtype", "fp")) for at in view.own_launches for name, fact in at.args.items()]
    whole = {name for name, dtype in facts if dtype[:2] not in ("fp", "bf")}

    def shows(node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            to_whole = "int" in tree.text_of(node) or not whole.isdisjoint(tree.reads(node))
            return node.func.attr in STEPS or (node.func.attr in ("to", "cast", "store") and to_whole)
        return isinstance(node, ast.Compare) or isinstance(getattr(node, "op", None), (ast.Sub, ast.FloorDiv, ast.Mod))

    return any(shows(n) and quotient.reaches(n) for s in view.body for n in ast.walk(s))


def _wider(left: Shape | None, right: Shape | None) -> bool:
    """Whether the divisor has fewer elements than the block, whatever the sizes."""
    if left is None or right is None or not left:
        return False
    if right == ():
        return True
    fits = len(left) == len(right) and all(r in (d, "1") for d, r in zip(left, right, strict=True))
    return fits and left != right
