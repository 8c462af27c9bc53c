"""The launch spec's arithmetic: a small evaluator over a whitelisted syntax tree, never `eval`.

An expression may use a kernel's scalar arguments and constexprs by name, integer arithmetic, comparison, `min`, `max`,
`cdiv`, `next_power_of_2`, `shape(arg, i)`, `stride(arg, i)`, `numel(arg)`, `aligned(arg)` (true if its address is a
multiple of 16 bytes), `num_sms`, and `grid(i)`, the i-th axis of the launcher's own grid.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from kernelsearch.core.errors import ExpressionError
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import ArgFact, TensorFact

MAX_LENGTH = 400
MAX_DEPTH = 40
MAX_MAGNITUDE = 2**62

Result = int | bool | tuple


@dataclass(frozen=True)
class Scope:
    """The names that an expression may use: arguments and constexprs, device facts, the launcher's grid."""

    args: Mapping[str, ArgFact] = field(default_factory=dict)
    num_sms: int = 1
    grid: tuple[int, ...] | Callable[[], tuple[int, ...]] | None = None


def evaluate(text: str, scope: Scope) -> Result:
    """The value of an expression: an int, a bool, or a tuple of them. Raises ExpressionError."""
    tree = _parse(text)
    try:
        return _evaluate_node(tree, scope)
    except ExpressionError as error:
        raise ExpressionError(f"{error}, in {text!r}") from None


def validate(text: str) -> None:
    """Checks an expression's form without values for its names. Raises ExpressionError."""
    _parse(text)


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


_FUNCTIONS: dict[str, tuple[Callable[..., int], int | None]] = {
    "min": (lambda *values: min(values), None),
    "max": (lambda *values: max(values), None),
    "cdiv": (cdiv, 2),
    "next_power_of_2": (next_power_of_2, 1),
}
"""Each function with the number of its arguments, None for any number."""
_BINARY: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type, Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@lru_cache(maxsize=4096)
def _parse(text: str) -> ast.expr:
    """The expression's tree, of which every node is known to be allowed."""
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression is a string of at most {MAX_LENGTH} characters")
    try:
        tree = parse_python(text.strip(), "eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"not an expression: {text!r}") from None
    try:
        _check(tree, 0)
    except ExpressionError as error:
        raise ExpressionError(f"{error}, in {text!r}") from None
    return tree


def _check(node: ast.expr, depth: int) -> None:
    """Raises ExpressionError for a node that `_evaluate_node` does not know."""
    inner: list[ast.expr] = []
    match node:
        case ast.Constant(value=bool() | int() as value):
            _check_magnitude(value)
        case ast.Name():
            pass
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
                raise ExpressionError(f"unknown function {name!r}")
        case _:
            raise ExpressionError(f"{type(node).__name__} is not allowed")
    if depth > MAX_DEPTH:
        raise ExpressionError("an expression nests too deeply")
    for item in inner:
        _check(item, depth + 1)


def _evaluate_node(node: ast.expr, scope: Scope) -> Result:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _look_up(name, scope)
        case ast.Tuple(elts=items):
            return tuple(_evaluate_integer(item, scope) for item in items)
        case ast.BinOp(left=left, op=op, right=right):
            return _apply(_BINARY[type(op)], _evaluate_integer(left, scope), _evaluate_integer(right, scope))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate_integer(operand, scope)
        case ast.UnaryOp(operand=operand):
            return not _evaluate_node(operand, scope)
        case ast.BoolOp(op=op, values=values):
            return (all if isinstance(op, ast.And) else any)(bool(_evaluate_node(v, scope)) for v in values)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _COMPARE[type(op)](_evaluate_integer(left, scope), _evaluate_integer(right, scope))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _evaluate_node(body if _evaluate_node(test, scope) else orelse, scope)
        case ast.Call(func=ast.Name(id=name), args=args):
            return _call_function(name, args, scope)
    raise ExpressionError(f"{type(node).__name__} is not allowed")


def _evaluate_integer(node: ast.expr, scope: Scope) -> int:
    value = _evaluate_node(node, scope)
    if isinstance(value, tuple):
        raise ExpressionError("a tuple where a number is needed")
    return value


def _check_magnitude(value: int) -> int:
    if abs(value) > MAX_MAGNITUDE:
        raise ExpressionError("a number beyond 2**62")
    return value


def _apply(function: Callable[..., int], *values: int) -> int:
    try:
        return _check_magnitude(function(*values))
    except ZeroDivisionError:
        raise ExpressionError("division by zero") from None


def _look_up(name: str, scope: Scope) -> int:
    if name == "num_sms":
        return scope.num_sms
    if name not in scope.args:
        raise ExpressionError(f"{name!r} is not an argument of this kernel")
    value = scope.args[name]
    if not isinstance(value, int):
        raise ExpressionError(f"{name!r} is not an integer")
    return value


def _call_function(name: str, args: list[ast.expr], scope: Scope) -> int:
    if name in _FUNCTIONS:
        function, count = _FUNCTIONS[name]
        if count not in (None, len(args)):
            raise ExpressionError(f"{name} takes {count} numbers")
        return _apply(function, *(_evaluate_integer(a, scope) for a in args))
    if name == "grid" and len(args) == 1:
        grid = scope.grid() if callable(scope.grid) else scope.grid
        if grid is None:
            raise ExpressionError("the launcher's grid is not known here")
        axis = _evaluate_integer(args[0], scope)
        return grid[axis] if 0 <= axis < len(grid) else 1
    if name == "grid" or not isinstance(args[0], ast.Name):
        raise ExpressionError(
            f"{name} takes {'the number of an axis' if name == 'grid' else 'a tensor argument first'}"
        )
    argument = args[0].id
    tensor = scope.args.get(argument)
    if not isinstance(tensor, TensorFact):
        raise ExpressionError(f"{argument!r} is not a tensor argument")
    if name == "numel":
        return math.prod(tensor.shape)
    if name == "aligned":
        return tensor.aligned
    axis = _evaluate_integer(args[1], scope) if len(args) == 2 else -99
    sizes = tensor.shape if name == "shape" else tensor.stride
    if not -len(sizes) <= axis < len(sizes):
        raise ExpressionError(f"{argument!r} has {len(sizes)} axes")
    return sizes[axis]
