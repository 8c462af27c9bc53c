"""`and`, `or` and `not` of tensors, as Triton's compiler reads them; Python would ask a tensor for one truth value.

Which blocks run is kept too (`REACHED`, `RAN`); a branch on a constant is not: the compiler leaves one side out.

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

from kernelsearch.kernel.blocks import Block, list_sides
from kernelsearch.worker.interpreter.waiting import count_turns

JOIN, NEGATE, UNWRAP = "_join_truth_values", "_negate_truth_value", "_unwrap_constant"
REACH, RUN = "_reach_blocks", "_run_block"
"""Names under which rewritten kernels call the functions below."""
REACHED: set[Block] = set()
RAN: set[Block] = set()
"""Blocks of the kernels since these were cleared: those whose condition was computed as it ran, and those that ran."""


def install() -> None:
    """Rewrites operators and `.value` in every kernel of this process; Triton copies its module's names into each."""
    setattr(interpreter, JOIN, join)
    setattr(interpreter, NEGATE, negate)
    setattr(interpreter, UNWRAP, unwrap)
    setattr(interpreter, REACH, reach)
    setattr(interpreter, RUN, run)
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


def reach(condition: Any, block: Block) -> Any:
    """The condition of a block, a truth value or the indices of a loop."""
    if not isinstance(condition, (bool, int, range, tl.constexpr)) and condition is not None:
        REACHED.add(block)
    return condition


def run(block: Block, value: Any = None) -> Any:
    """The value of a block that is an expression."""
    RAN.add(block)
    return value


class _LogicTransformer(interpreter.ASTTransformer):
    """Rewrites the three operators, `.value`, conditions, blocks, and `while` loops (`waiting.py`)."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Has each block and each condition of one say that it runs."""
        for side in sorted(list_sides(node), key=lambda side: -side.start):
            block, owner = ast.Constant(side.block), side.owner
            if isinstance(owner, ast.IfExp):
                setattr(owner, side.name, _call(RUN, block, *side.nodes))
            else:
                side.nodes.insert(side.start, ast.Expr(_call(RUN, block)))
            name = "iter" if isinstance(owner, ast.For) else "test"
            owner.plain = getattr(owner, "plain", getattr(owner, name))
            setattr(owner, name, _call(REACH, getattr(owner, name), block))
        return self.generic_visit(node)

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
