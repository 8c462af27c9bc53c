"""Accumulators of a loop: the statement that updates them, its operation, and where they start."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree

COMBINE = {"sum": "{a} + {b}", "max": "tl.maximum({a}, {b})", "min": "tl.minimum({a}, {b})"}
IDENTITY = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}


@dataclass(frozen=True)
class Update:
    """`name = name op value` inside a loop; kind is `sum`, `max` or `min`."""

    name: str
    kind: str
    value: ast.expr
    stmt: ast.stmt


def update_of(stmt: ast.stmt) -> Update | None:
    """The update that a statement makes; None if it makes none."""
    pair = tree.assignment(stmt)
    if pair is None:
        return None
    name, value = pair
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return _split(name, "sum", value.left, value.right, stmt)
    for function, kind in (("maximum", "max"), ("minimum", "min")):
        if tree.is_tl(value, function) and len(value.args) == 2 and not value.keywords:
            return _split(name, kind, value.args[0], value.args[1], stmt)
    if tree.is_tl(value, "dot"):
        assert isinstance(value, ast.Call)
        acc = tree.argument(value, 2, "acc")
        others = [a for a in [*value.args, *(k.value for k in value.keywords)] if a is not acc]
        if isinstance(acc, ast.Name) and acc.id == name and name not in tree.reads(others):
            return Update(name, "sum", value, stmt)
    return None


def _split(name: str, kind: str, a: ast.expr, b: ast.expr, stmt: ast.stmt) -> Update | None:
    for own, other in ((a, b), (b, a)):
        if isinstance(own, ast.Name) and own.id == name and name not in tree.reads(other):
            return Update(name, kind, other, stmt)
    return None


def is_identity(value: ast.expr, kind: str) -> bool:
    """Whether an initial value is the operation's identity in float32, as a number, `tl.zeros` or `tl.full`."""
    if tree.is_tl(value, "zeros"):
        return kind == "sum" and is_float32(value)
    if tree.is_tl(value, "full"):
        inner = tree.argument(value, 1, "value")
        return inner is not None and is_identity(inner, kind) and is_float32(value)
    if kind == "sum":
        return isinstance(value, ast.Constant) and isinstance(value.value, float) and value.value == 0.0
    return tree.is_infinity(value, -1 if kind == "max" else 1)


def is_float32(value: ast.expr) -> bool:
    """Whether an initial value makes a float32 accumulator: a float number, or a block with `tl.float32`."""
    if tree.is_tl(value, "zeros", "full"):
        dtype = tree.argument(value, 1 if tree.is_tl(value, "zeros") else 2, "dtype")
        return dtype is not None and tree.text_of(dtype) == "tl.float32"
    return tree.is_infinity(value, -1, 1) or (isinstance(value, ast.Constant) and isinstance(value.value, float))


def reduction_of(value: ast.expr, kind: str) -> ast.Call | None:
    """The call if value is `tl.sum/max/min(block)` of this kind, with no other arguments than axis and keep_dims."""
    if not isinstance(value, ast.Call) or not tree.is_tl(value, kind):
        return None
    plain = {k.arg for k in value.keywords} <= {"axis", "keep_dims"} and 1 <= len(value.args) <= 2
    return value if plain else None


def format_reduction(call: ast.Call, operand: str) -> str:
    """The text of a reduction with another operand."""
    rest = [tree.text_of(node) for node in (*call.args[1:], *call.keywords)]
    return f"{tree.callee(call)}({', '.join([operand, *rest])})"


def format_identity(shape: tuple[str, ...], kind: str) -> str:
    """A float32 block (or scalar) of the operation's identity."""
    return f"tl.full([{', '.join(shape)}], {IDENTITY[kind]}, tl.float32)" if shape else IDENTITY[kind]
