"""The launch spec's arithmetic: a small evaluator over a whitelisted syntax tree, never `eval`.

Knows a kernel's scalar arguments and constexprs by name, integer arithmetic, comparison,
`min`, `max`, `cdiv`, `next_power_of_2`, `shape(arg, i)`, `stride(arg, i)`, `numel(arg)`,
`aligned(arg)` (its address is a multiple of 16 bytes), `num_sms`, and `grid(i)`, the i-th axis of the grid that the launcher itself asked for.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from kernelsearch.core.errors import ExpressionError
from kernelsearch.core.parsing import parsed
from kernelsearch.core.types import ArgFact, TensorFact

MAX_LENGTH = 400
MAX_DEPTH = 40
MAX_MAGNITUDE = 2**62

Result = int | bool | tuple


@dataclass(frozen=True)
class Scope:
    """What an expression may speak of: arguments and constexprs by name, device facts, the launcher's grid."""

    args: Mapping[str, ArgFact] = field(default_factory=dict)
    num_sms: int = 1
    grid: tuple[int, ...] | Callable[[], tuple[int, ...]] | None = None


def evaluate(text: str, scope: Scope) -> Result:
    """The value of an expression: an int, a bool, or a tuple of them. Raises ExpressionError."""
    return _value(_parsed(text), scope, text)


def names_in(text: str) -> frozenset[str]:
    """The argument and constexpr names that an expression mentions."""
    tree = _parsed(text)
    functions = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name)) - functions - {"num_sms"}


def validate(text: str) -> None:
    """Checks an expression's form without values for its names. Raises ExpressionError."""
    _parsed(text)


def _validated(node: ast.expr, text: str, depth: int) -> None:
    match node:
        case ast.Constant(value=bool() | int() as value):
            _bounded(value, text)
            inner = []
        case ast.Name():
            inner = []
        case ast.Tuple(elts=inner) | ast.BoolOp(values=inner):
            pass
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            inner = [left, right]
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            inner = [operand]
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            inner = [left, right]
        case ast.IfExp(test=test, body=body, orelse=orelse):
            inner = [test, body, orelse]
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as inner, keywords=[]):
            if name not in (*_FUNCTIONS, "shape", "stride", "numel", "aligned", "grid"):
                raise ExpressionError(f"unknown function {name!r} in {text!r}")
        case _:
            raise ExpressionError(f"{type(node).__name__} is not allowed in {text!r}")
    if depth > MAX_DEPTH:
        raise ExpressionError("an expression nests too deeply")
    for item in inner:
        _validated(item, text, depth + 1)


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


_FUNCTIONS: dict[str, tuple[Callable[..., int], int | None]] = {
    "min": (min, None),
    "max": (max, None),
    "cdiv": (cdiv, 2),
    "next_power_of_2": (next_power_of_2, 1),
}
_BINARY: dict[type, Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_COMPARE: dict[type, Callable[[int, int], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}


@lru_cache(maxsize=4096)
def _parsed(text: str) -> ast.expr:
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression is a string of at most {MAX_LENGTH} characters")
    try:
        tree = parsed(text.strip(), "eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"not an expression: {text!r}") from None
    _validated(tree, text, 0)
    return tree


def _value(node: ast.expr, scope: Scope, text: str) -> Result:
    match node:
        case ast.Constant(value=bool() | int() as value):
            return _bounded(value, text)
        case ast.Name(id=name):
            return _name(name, scope, text)
        case ast.Tuple(elts=items):
            return tuple(_integer(item, scope, text) for item in items)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = _integer(left, scope, text), _integer(right, scope, text)
            try:
                return _bounded(_BINARY[type(op)](a, b), text)
            except ZeroDivisionError:
                raise ExpressionError(f"division by zero in {text!r}") from None
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_integer(operand, scope, text)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, scope, text)
        case ast.BoolOp(op=op, values=values):
            results = (bool(_value(v, scope, text)) for v in values)
            return all(results) if isinstance(op, ast.And) else any(results)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _COMPARE[type(op)](_integer(left, scope, text), _integer(right, scope, text))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _value(body if _value(test, scope, text) else orelse, scope, text)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return _call(name, args, scope, text)
    raise ExpressionError(f"{type(node).__name__} is not allowed in {text!r}")


def _integer(node: ast.expr, scope: Scope, text: str) -> int:
    value = _value(node, scope, text)
    if isinstance(value, tuple):
        raise ExpressionError(f"a tuple where a number is needed in {text!r}")
    return value


def _bounded(value: int, text: str) -> int:
    if abs(value) > MAX_MAGNITUDE:
        raise ExpressionError(f"a number beyond 2**62 in {text!r}")
    return value


def _name(name: str, scope: Scope, text: str) -> int:
    if name == "num_sms":
        return scope.num_sms
    if name not in scope.args:
        raise ExpressionError(f"{name!r} is not an argument of this kernel, in {text!r}")
    value = scope.args[name]
    if not isinstance(value, int):
        raise ExpressionError(f"{name!r} is not an integer, in {text!r}")
    return value


def _call(name: str, args: list[ast.expr], scope: Scope, text: str) -> int:
    if name in _FUNCTIONS:
        function, count = _FUNCTIONS[name]
        values = [_integer(a, scope, text) for a in args]
        if (count is not None and len(values) != count) or not values:
            raise ExpressionError(f"{name} takes {count or 'some'} numbers, in {text!r}")
        try:
            return _bounded(function(*values) if len(values) > 1 or count == 1 else values[0], text)
        except ZeroDivisionError:
            raise ExpressionError(f"division by zero in {text!r}") from None
    if name == "grid" and len(args) == 1:
        grid = scope.grid() if callable(scope.grid) else scope.grid
        if grid is None:
            raise ExpressionError(f"the launcher's grid is not known here, in {text!r}")
        axis = _integer(args[0], scope, text)
        return grid[axis] if 0 <= axis < len(grid) else 1
    if name in ("shape", "stride", "numel", "aligned") and args and isinstance(args[0], ast.Name):
        tensor = scope.args.get(args[0].id)
        if not isinstance(tensor, TensorFact):
            raise ExpressionError(f"{args[0].id!r} is not a tensor argument, in {text!r}")
        if name == "numel":
            return math.prod(tensor.shape)
        if name == "aligned":
            return tensor.aligned
        axis = _integer(args[1], scope, text) if len(args) == 2 else -99
        sizes = tensor.shape if name == "shape" else tensor.stride
        if not -len(sizes) <= axis < len(sizes):
            raise ExpressionError(f"{args[0].id!r} has {len(sizes)} axes, in {text!r}")
        return sizes[axis]
    raise ExpressionError(f"unknown function {name!r} in {text!r}")
