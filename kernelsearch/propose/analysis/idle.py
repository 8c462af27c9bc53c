"""Values of masked-out lanes: the abstract value of each expression where `offsets < size` is false.

A reduction may skip such lanes only if they have its identity (0 for a sum, minus infinity for a maximum).
Scalars count as finite: where one is not, the lanes that are not masked are NaN or infinite too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from kernelsearch.propose.analysis import tree

ZERO, NEGATIVE, POSITIVE, FINITE, ANY, FALSE, TRUE = "zero", "-inf", "+inf", "finite", "any", "false", "true"
GROUPED = "-inf in groups"
"""Minus infinity in groups of neighbours: where a tile begins decides who they are, and so what is made of them."""
BOUNDED = {ZERO, FINITE, FALSE, TRUE}
IDENTITY = {"sum": ZERO, "max": NEGATIVE, "min": POSITIVE}
OPPOSITE = {NEGATIVE: POSITIVE, POSITIVE: NEGATIVE}


class Idle:
    """Evaluates expressions on masked-out lanes.

    is_bound recognises the comparison that masks them; is_block tells whether a name is a block.
    """

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
                sides = {self.of(n) for n in (node.left, *node.comparators)}
                return FALSE if self.is_bound(node) else FINITE if sides <= BOUNDED else ANY
            case ast.BinOp(left=left, op=ast.Mult(), right=ast.Constant(value=float() | int() as by)) if by > 0:
                return self.of(left)
            case ast.BinOp(left=left, op=op, right=right):
                return _binary(op, self.of(left), self.of(right), tree.is_same(left, right))
            case ast.Subscript(value=value):
                return self.of(value)
            case ast.Call():
                return self._call(node)
        return ANY

    def _call(self, node: ast.Call) -> str:
        if tree.is_infinity(node, -1):
            return NEGATIVE
        if tree.is_infinity(node, 1):
            return POSITIVE
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and not tree.callee(node).startswith("tl."):
            return self.of(node.func.value)
        if tree.is_tl(node, "load"):
            mask, other = tree.argument(node, 1, "mask"), tree.argument(node, 2, "other")
            if mask is not None and self.of(mask) == FALSE:
                return self.of(other) if other is not None else ANY
            varies = any(self.is_block(n) for n in tree.reads(node)) or tree.calls(node, "arange")
            return ANY if varies else FINITE
        if tree.is_tl(node, "where") and len(node.args) == 3:
            test, yes, no = (self.of(a) for a in node.args)
            if test == FALSE:
                return no
            return yes if yes == no else FINITE if {yes, no} <= BOUNDED else ANY
        if tree.is_tl(node, "reshape") and len(node.args) == 2 and not node.keywords:  # it may not reorder
            return GROUPED if self.of(node.args[0]) == NEGATIVE else ANY
        return _function(tree.callee(node).rpartition(".")[2], [self.of(a) for a in node.args])


def _binary(op: ast.operator, a: str, b: str, alike: bool) -> str:
    both = {a, b}
    if isinstance(op, ast.BitAnd) and FALSE in both:
        return FALSE
    if isinstance(op, ast.Mult) and ZERO in both and both <= BOUNDED:
        return ZERO
    if isinstance(op, (ast.Div, ast.FloorDiv)) and a == ZERO and b in (FINITE, TRUE):
        return ZERO
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
    if name in ("maximum", "minimum", "fma") and set(given) == {ZERO}:
        return ZERO
    if name in ("maximum", "minimum", "fma", "program_id", "erf", "cos", "abs") and set(given) <= BOUNDED:
        return FINITE
    return ANY
