"""What a masked-out lane holds: the abstract value of each expression where `offsets < size` is false.

A reduction may skip such lanes only when they hold its identity (0 for a sum, minus infinity for a
maximum). Scalars count as finite: where one is not, the lanes that are not masked are NaN or infinite too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from kernelsearch.propose.analysis import tree

ZERO, NEGATIVE, POSITIVE, FINITE, ANY, FALSE, TRUE = "zero", "-inf", "+inf", "finite", "any", "false", "true"
BOUNDED = {ZERO, FINITE, FALSE, TRUE}
IDENTITY = {"sum": ZERO, "max": NEGATIVE, "min": POSITIVE}
OPPOSITE = {NEGATIVE: POSITIVE, POSITIVE: NEGATIVE}


class Idle:
    """Evaluates expressions on masked-out lanes; `is_bound` recognises the comparison that masks them."""

    def __init__(self, is_bound: Callable[[ast.Compare], bool], is_block: Callable[[str], bool]) -> None:
        self.is_bound = is_bound
        self.is_block = is_block
        self.names: dict[str, str] = {}

    def assign(self, name: str, value: ast.expr) -> None:
        self.names[name] = self.of(value)

    def of(self, node: ast.expr) -> str:
        match node:
            case ast.Constant(value=value):
                return ZERO if value == 0 and not isinstance(value, bool) else FINITE
            case ast.Name(id=name):
                return self.names.get(name, ANY if self.is_block(name) else FINITE)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                if tree.is_infinity(node, -1):
                    return NEGATIVE
                inner = self.of(operand)
                return OPPOSITE.get(inner, inner)
            case ast.Compare():
                return FALSE if self.is_bound(node) else FINITE if self._all_bounded(node) else ANY
            case ast.BinOp(left=left, op=op, right=right):
                return _binary(op, self.of(left), self.of(right), tree.same(left, right))
            case ast.Subscript(value=value):
                return self.of(value)
            case ast.Call():
                return self._call(node)
        return ANY

    def _all_bounded(self, node: ast.AST) -> bool:
        return all(self.of(n) in BOUNDED for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr))

    def _call(self, node: ast.Call) -> str:
        if tree.is_infinity(node, -1):
            return NEGATIVE
        if tree.is_infinity(node, 1):
            return POSITIVE
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and not tree.called(node).startswith("tl."):
            return self.of(node.func.value)
        if tree.is_tl(node, "load"):
            mask, other = tree.argument(node, 1, "mask"), tree.argument(node, 2, "other")
            if mask is not None and self.of(mask) == FALSE:
                return self.of(other) if other is not None else ANY
            return ANY if self._varies(node) else FINITE
        if tree.is_tl(node, "where") and len(node.args) == 3:
            test, yes, no = (self.of(a) for a in node.args)
            if test == FALSE:
                return no
            return yes if yes == no else FINITE if {yes, no} <= BOUNDED else ANY
        given = [self.of(a) for a in node.args]
        return _function(tree.called(node).rpartition(".")[2], given)

    def _varies(self, node: ast.AST) -> bool:
        return any(self.is_block(n) for n in tree.reads(node)) or bool(tree.calls(node, "arange"))


def _binary(op: ast.operator, a: str, b: str, alike: bool) -> str:
    both = {a, b}
    if isinstance(op, ast.BitAnd):
        return FALSE if FALSE in both else FINITE if both <= BOUNDED else ANY
    if isinstance(op, ast.Mult):
        return ZERO if ZERO in both and both <= BOUNDED else FINITE if both <= BOUNDED else ANY
    if isinstance(op, (ast.Div, ast.FloorDiv)):
        return ZERO if a == ZERO and b in (FINITE, TRUE) else FINITE if both <= BOUNDED else ANY
    if isinstance(op, (ast.Add, ast.Sub)):
        if isinstance(op, ast.Sub):
            b = OPPOSITE.get(b, b)
            if alike and a in BOUNDED:
                return ZERO
        if a == b == ZERO:
            return ZERO
        infinite = {a, b} & {NEGATIVE, POSITIVE}
        if len(infinite) == 1 and {a, b} - infinite <= BOUNDED:
            return infinite.pop()
    return FINITE if both <= BOUNDED else ANY


def _function(name: str, given: list[str]) -> str:
    if name in ("exp", "exp2") and given:
        return {NEGATIVE: ZERO, ZERO: FINITE, FINITE: FINITE}.get(given[0], ANY)
    if name == "sigmoid" and given:
        return ZERO if given[0] == NEGATIVE else FINITE if given[0] in BOUNDED else ANY
    if name in ("sqrt", "erf", "abs", "sin", "floor", "ceil") and given == [ZERO]:
        return ZERO
    if name == "abs" and given and given[0] in OPPOSITE:
        return POSITIVE
    if name == "maximum" and NEGATIVE in given and len(given) == 2:
        return given[0] if given[1] == NEGATIVE else given[1]
    if name in ("maximum", "minimum", "fma", "program_id", "erf", "cos", "abs") and set(given) <= BOUNDED:
        return ZERO if set(given) == {ZERO} and name in ("maximum", "minimum", "fma") else FINITE
    return ANY


def identity_text(reduction: str) -> str:
    """The identity of a reduction as source."""
    return {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}[reduction]
