"""`and`, `or` and `not` of tensors, as Triton's compiler reads them; Python would ask a tensor for one truth value.

The interpreter runs a kernel as Python, where `row_mask and col_mask` is one of the two masks. The compiler joins them
element by element (`CodeGenerator.visit_BoolOp`), and evaluates both sides; only constants end an expression early.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import reduce
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

from kernelsearch.worker.interpreter.waiting import count_turns

JOIN, NEGATE, UNWRAP = "_join_truth_values", "_negate_truth_value", "_unwrap_constant"
"""Names under which rewritten kernels call the three functions below."""


def install() -> None:
    """Rewrites operators and `.value` in every kernel of this process; Triton copies its module's names into each."""
    setattr(interpreter, JOIN, join)
    setattr(interpreter, NEGATE, negate)
    setattr(interpreter, UNWRAP, unwrap)
    interpreter.FunctionRewriter.ast_transformer = _LogicTransformer()


def join(word: str, *operands: Callable[[], Any]) -> Any:
    """The value of `a and b ...` or `a or b ...`, each operand a function of nothing."""
    tensors, value = [], None
    for operand in operands:
        value = operand()
        if isinstance(value, tl.tensor):
            tensors.append(value)
        elif bool(value) is (word == "or"):
            return value
    if not tensors:
        return value
    return reduce(lambda right, left: getattr(left, f"logical_{word}")(right), reversed(tensors))


def negate(value: Any) -> Any:
    """The value of `not a`."""
    return value.__not__() if isinstance(value, tl.tensor) else not value


def unwrap(value: Any) -> Any:
    """The value of `a.value`: the compiler wraps what a function is given in a constexpr; here it is bare."""
    return getattr(value, "value", value)


class _LogicTransformer(interpreter.ASTTransformer):
    """Rewrites the three operators, `.value`, and `while` loops (`waiting.py`)."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.value = self.visit(node.value)
        return super().visit_Assign(node)

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        begin, loop = count_turns(node)
        return [begin, self.generic_visit(loop)]

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        nothing = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
        word = ast.Constant("and" if isinstance(node.op, ast.And) else "or")
        return _call(JOIN, word, *(ast.Lambda(nothing, value) for value in node.values))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call(NEGATE, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        return _call(UNWRAP, node.value) if node.attr == "value" and isinstance(node.ctx, ast.Load) else node


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
