"""Accumulators of a loop: which statement updates them, by what operation, and where they start."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree

COMBINE = {"sum": "{a} + {b}", "max": "tl.maximum({a}, {b})", "min": "tl.minimum({a}, {b})"}


@dataclass(frozen=True)
class Update:
    """`name = name op value` inside a loop: kind is `sum`, `max` or `min`, value is what is folded in."""

    name: str
    kind: str
    value: ast.expr
    stmt: ast.stmt


def update_of(stmt: ast.stmt) -> Update | None:
    """The update that a statement makes, None when it is not one."""
    pair = tree.assignment(stmt)
    if pair is None:
        return None
    name, value = pair
    if isinstance(stmt, ast.AugAssign):
        ok = isinstance(stmt.op, ast.Add) and name not in tree.reads(stmt.value)
        return Update(name, "sum", stmt.value, stmt) if ok else None
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return _split(name, "sum", value.left, value.right, stmt)
    for function, kind in (("maximum", "max"), ("minimum", "min")):
        if tree.is_tl(value, function) and len(value.args) == 2 and not value.keywords:  # type: ignore[attr-defined]
            return _split(name, kind, *value.args, stmt)  # type: ignore[attr-defined]
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


def starts_at_identity(value: ast.expr, kind: str) -> bool:
    """Whether an initial value is the identity of the operation, as a number, `tl.zeros` or `tl.full`."""
    if tree.is_tl(value, "zeros"):
        return kind == "sum"
    if tree.is_tl(value, "full"):
        inner = tree.argument(value, 1, "value")  # type: ignore[arg-type]
        return inner is not None and starts_at_identity(inner, kind)
    if kind == "sum":
        return isinstance(value, ast.Constant) and isinstance(value.value, float) and value.value == 0.0
    return tree.is_infinity(value, -1 if kind == "max" else 1)


def is_float32(value: ast.expr) -> bool:
    """Whether an initial value makes a float32 accumulator: a float number, or `tl.float32` named."""
    if tree.is_tl(value, "zeros", "full"):
        dtype = tree.argument(value, 1 if tree.is_tl(value, "zeros") else 2, "dtype")  # type: ignore[arg-type]
        return dtype is not None and tree.text_of(dtype) == "tl.float32"
    return (isinstance(value, ast.Constant) and isinstance(value.value, float)) or any(
        tree.is_infinity(value, s) for s in (-1, 1)
    )


def reduction_of(value: ast.expr, kind: str) -> ast.Call | None:
    """The call when value is `tl.sum/max/min(block, axis)` of this kind, without other arguments than an axis."""
    if not tree.is_tl(value, kind):
        return None
    assert isinstance(value, ast.Call)
    fine = {k.arg for k in value.keywords} <= {"axis", "keep_dims"} and 1 <= len(value.args) <= 2
    return value if fine else None


def full(shape: tuple[str, ...], kind: str) -> str:
    """A float32 block (or scalar) of the operation's identity."""
    identity = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}[kind]
    return f"tl.full([{', '.join(shape)}], {identity}, tl.float32)" if shape else identity
