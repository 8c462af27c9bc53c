"""Base-two exponentials: `exp(x)` is `exp2(x * log2(e))`, and the factor may join a scale that the kernel has already.

It is folded into a scalar only where the block was multiplied by one before: to multiply raw inputs first would
round differences of large numbers, which the original computes exactly.
"""

from __future__ import annotations

import ast
import copy

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import strip_axes
from kernelsearch.propose.analysis.view import Changes, View
from kernelsearch.propose.edits.base import Edit

LOG2E = "1.4426950408889634"


class Exp2(Edit):
    summary = "exp2 with the factor log2(e) in place of exp"
    refusal = "it has no tl.exp"

    def change(self, view: View) -> Changes:
        uses = tree.calls(view.node, "exp")
        if not uses:
            return
        if folded := _folded(view, uses):
            why = "The factor log2(e) joins the scale of the scores, which saves a multiplication per element."
            yield view.rewrite(folded, why)
        patch = tree.Patch(view.text)
        nested = {n for call in uses for n in ast.walk(call) if n is not call}
        for call in uses:
            if call not in nested:
                two = lambda n: tree.expression(_exp2(n.args[0])) if tree.is_tl(n, "exp") else None  # noqa: E731
                inner = tree.transform(tree.expression(tree.text_of(call.args[0])), two)
                patch.replace_expr(call, _exp2(inner))
        yield view.rewrite(patch, "exp2 is the machine's own instruction; exp is built on it.")


def _exp2(exponent: ast.AST) -> str:
    return f"tl.exp2({tree.parenthesise(tree.text_of(exponent))} * {LOG2E})"


def _folded(view: View, uses: list[ast.Call]) -> tree.Patch | None:
    """The function with one scaled block and all that derives from it in units of log2, or None.

    Requires `s = block * scalar`, and that every use of s, through maxima and `where` with infinity, ends in
    `tl.exp(a - b)` with both sides derived from s.
    """
    for stmt in tree.all_statements(view.body):
        pair = tree.assignment(stmt)
        if pair is None or not isinstance(pair[1], ast.BinOp) or not isinstance(pair[1].op, ast.Mult):
            continue
        block, scale = view.shapes.of(pair[1].left), view.shapes.of(pair[1].right)
        if isinstance(stmt, ast.AugAssign) or not block or scale != ():
            continue
        derived = _derived(view, pair[0], stmt)
        if derived is None or not all(_difference(c.args[0], derived) for c in uses):
            continue
        patch = tree.Patch(view.text)
        right = tree.parenthesise(tree.text_of(pair[1].right))
        patch.replace_expr(pair[1].right, f"({right} * {LOG2E})")
        for call in uses:
            patch.replace_expr(call, f"tl.exp2({tree.text_of(call.args[0])})")
        return patch
    return None


def _difference(node: ast.expr, derived: set[str]) -> bool:
    """Whether node is `a - b` where both sides are derived names, possibly with new axes."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):
        return False
    sides = (strip_axes(node.left), strip_axes(node.right))
    return all(isinstance(s, ast.Name) and s.id in derived for s in sides)


def _derived(view: View, name: str, origin: ast.stmt) -> set[str] | None:
    """All names in the units of `name`; None if one of them is used in another way."""
    derived, before = {name}, 0
    pairs = [pair for stmt in tree.all_statements(view.body) if (pair := tree.assignment(stmt))]
    while len(derived) > before:
        before = len(derived)
        for target, value in pairs:
            if _unit(value, derived, some=True):
                derived.add(target)
    for stmt in tree.all_statements(view.body):
        if stmt is origin:
            continue
        pair = tree.assignment(stmt)
        if pair and _unit(pair[1], derived):
            continue
        if pair and pair[0] in derived and not _infinite(pair[1]):
            return None
        if tree.reads(_without_differences(tree.head_of(stmt), derived)) & derived:
            return None
    return derived


def _without_differences(node: ast.AST, derived: set[str]) -> ast.AST:
    """A statement or expression with 0 for `tl.exp` of differences of derived names."""

    def rule(node: ast.AST) -> ast.AST | None:
        is_difference = tree.is_tl(node, "exp") and _difference(node.args[0], derived)
        return ast.Constant(0) if is_difference else None

    return tree.transform(copy.deepcopy(node), rule)


def _unit(node: ast.expr, derived: set[str], some: bool = False) -> bool:
    """Whether an expression keeps the units: a derived name, a maximum of such, or a choice between it and infinity.

    With some, one derived side of a maximum is enough.
    """
    match strip_axes(node):
        case ast.Name(id=name):
            return name in derived
        case ast.Call(args=[block, *_]) as call if tree.is_tl(call, "max"):
            return _unit(block, derived)
        case ast.Call(args=sides) as call if tree.is_tl(call, "maximum"):
            if some:
                return any(_unit(side, derived, some) for side in sides)
            return all(_unit(side, derived) or _infinite(side) for side in sides)
        case ast.Call(args=[test, *sides]) as call if tree.is_tl(call, "where"):
            units = [_unit(side, derived) for side in sides]
            fine = all(unit or _infinite(side) for unit, side in zip(units, sides, strict=True))
            return any(units) and fine and not tree.reads(test) & derived
    return False


def _infinite(node: ast.expr) -> bool:
    if tree.is_tl(node, "full"):
        value = tree.argument(node, 1, "value")
        return value is not None and _infinite(value)
    return tree.is_infinity(node, -1, 1)
