"""Base-two exponentials: `exp(x)` is `exp2(x * log2(e))`, and the factor may join a scale that is there anyway.

Folded into a scalar only where the block was multiplied by one before: multiplying raw inputs first would
round differences of large numbers, which the original computes exactly.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import stripped
from kernelsearch.propose.analysis.view import CannotApply, View
from kernelsearch.propose.edits.base import Change, FunctionEdit, replaced

LOG2E = "1.4426950408889634"


class Exp2(FunctionEdit):
    name = "exp2"
    summary = "exp2 with the factor log2(e) in place of exp"

    def change(self, view: View) -> list[Change]:
        uses = tree.calls(view.node, "exp")
        if not uses:
            raise CannotApply("it has no tl.exp")
        changes = []
        folded = _folded(view, uses)
        if folded is not None:
            why = "The factor log2(e) joins the scale of the scores, which saves a multiplication per element."
            changes.append(Change(replaced(view, folded), why))
        patch = tree.Patch(view.text)
        for call in uses:
            if not any(other is not call and any(n is call for n in ast.walk(other)) for other in uses):
                inner = tree.parenthesised(_inner(call.args[0]))
                patch.expr(call, f"tl.exp2({inner} * {LOG2E})")
        why = "exp2 is the machine's own instruction; exp is built on it."
        changes.append(Change(replaced(view, patch.text()), why))
        return changes


def _inner(node: ast.expr) -> str:
    """The argument's text, with exponentials inside it rewritten too."""

    class Inner(ast.NodeTransformer):
        def visit_Call(self, call: ast.Call) -> ast.AST:
            self.generic_visit(call)
            if tree.is_tl(call, "exp"):
                argument = tree.parenthesised(tree.text_of(call.args[0]))
                return tree.expression(f"tl.exp2({argument} * {LOG2E})")
            return call

    return tree.text_of(Inner().visit(tree.expression(tree.text_of(node))))


def _folded(view: View, uses: list[ast.Call]) -> str | None:
    """The text with one scaled block and all that derives from it in units of log2, or None.

    Wants `s = block * scalar`, and every use of s, through maxima and `where` with infinity, to end
    in `tl.exp(a - b)` with both sides derived from s.
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
        right = tree.parenthesised(tree.text_of(pair[1].right))
        patch.expr(pair[1].right, f"({right} * {LOG2E})")
        for call in uses:
            patch.expr(call, f"tl.exp2({tree.text_of(call.args[0])})")
        return patch.text()
    return None


def _difference(node: ast.expr, derived: set[str]) -> bool:
    """Whether node is `a - b` with both sides names of the derived set, new axes aside."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)):
        return False
    sides = (stripped(node.left), stripped(node.right))
    return all(isinstance(s, ast.Name) and s.id in derived for s in sides)


def _derived(view: View, name: str, origin: ast.stmt) -> set[str] | None:
    """All names in the units of `name`; None when one of them is used in another way."""
    derived = {name}
    while True:
        before = len(derived)
        for stmt in tree.all_statements(view.body):
            pair = tree.assignment(stmt)
            if pair and _unit(pair[1], derived, any):
                derived.add(pair[0])
        if len(derived) == before:
            break
    for stmt in tree.all_statements(view.body):
        if stmt is origin or isinstance(stmt, (ast.For, ast.While, ast.If)):
            continue
        pair = tree.assignment(stmt)
        if pair and pair[0] in derived and not (_unit(pair[1], derived) or _infinite(pair[1])):
            return None
        if pair and _unit(pair[1], derived):
            continue
        outside = _Outside(derived)
        outside.visit(stmt)
        if outside.found:
            return None
    return derived


class _Outside(ast.NodeVisitor):
    """Looks for a use of derived names that is not the argument of tl.exp."""

    def __init__(self, derived: set[str]) -> None:
        self.derived, self.found = derived, False

    def visit_Call(self, node: ast.Call) -> None:
        if tree.is_tl(node, "exp") and _difference(node.args[0], self.derived):
            return
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and node.id in self.derived:
            self.found = True


def _unit(node: ast.expr, derived: set[str], of_maximum: Callable[..., bool] = all) -> bool:
    """Whether an expression keeps the units: a derived name, a maximum of such, or a choice between it and infinity."""
    node = stripped(node)
    if isinstance(node, ast.Name):
        return node.id in derived
    if tree.is_tl(node, "max"):
        return _unit(node.args[0], derived)  # type: ignore[attr-defined]
    if tree.is_tl(node, "maximum"):
        assert isinstance(node, ast.Call)
        found = [_unit(a, derived, of_maximum) for a in node.args]
        return of_maximum(u or (of_maximum is all and _infinite(a)) for u, a in zip(found, node.args, strict=True))
    if tree.is_tl(node, "where"):
        test, yes, no = node.args  # type: ignore[attr-defined]
        either = [_unit(yes, derived), _unit(no, derived)]
        return (
            any(either)
            and all(u or _infinite(a) for u, a in zip(either, (yes, no), strict=True))
            and not (tree.reads(test) & derived)
        )
    return False


def _infinite(node: ast.expr) -> bool:
    if tree.is_tl(node, "full"):
        value = tree.argument(node, 1, "value")  # type: ignore[arg-type]
        return value is not None and _infinite(value)
    return tree.is_infinity(node, -1) or tree.is_infinity(node, 1)
