"""The launch spec's arithmetic: a small evaluator over a whitelisted syntax tree, never `eval`.

An expression may use a kernel's scalar arguments and constexprs and the names of its config, arithmetic on integers and
floats, `& | ^ << >> ~` on integers, comparison, `min`, `max`, `int`, `cdiv`, `next_power_of_2`, `shape(arg, i)`,
`stride(arg, i)`, `numel(arg)`, `aligned(arg)` (true if its address is a multiple of 16 bytes), `num_sms`, and
`grid(i)`, the i-th axis of the launcher's own grid.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kernelsearch.core.errors import ExpressionError
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import ArgFact, TensorFact

MAX_LENGTH = 400
MAX_DEPTH = 40
MAX_MAGNITUDE = 2**62
MAX_SHIFT = 62

Number = int | float
Result = Number | tuple[Number, ...]


@dataclass(frozen=True)
class Scope:
    """The names that an expression may use: arguments and constexprs, device facts, the launcher's grid."""

    args: Mapping[str, ArgFact | tuple[Number, ...]] = field(default_factory=dict)
    num_sms: int = 1
    grid: tuple[int, ...] | Callable[[], tuple[int, ...]] | None = None


Compiled = Callable[[Scope], Result]


def evaluate(text: str, scope: Scope) -> Result:
    """The value of an expression: a number, a bool, or a tuple of them. Raises ExpressionError."""
    compiled = _compile_text(text)
    try:
        return compiled(scope)
    except ExpressionError as error:
        raise ExpressionError(f"{error}, in {text!r}") from None


def validate(text: str) -> None:
    """Checks an expression's form without values for its names. Raises ExpressionError."""
    _compile_text(text)


@lru_cache(maxsize=4096)
def names_in(text: str) -> frozenset[str]:
    """The names that a valid expression reads, functions not among them."""
    nodes = list(ast.walk(parse_python(text.strip(), "eval")))
    called = {id(n.func) for n in nodes if isinstance(n, ast.Call)}
    return frozenset(n.id for n in nodes if isinstance(n, ast.Name) and id(n) not in called)


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


FUNCTIONS: dict[str, tuple[Callable[..., Number], int | None]] = {
    "min": (lambda *values: min(values), None),
    "max": (lambda *values: max(values), None),
    "int": (int, 1),
    "cdiv": (cdiv, 2),
    "next_power_of_2": (next_power_of_2, 1),
}
"""Each function with the number of its arguments, None for any number."""
_OF_INTEGERS = ("cdiv", "next_power_of_2")
_OF_TENSORS = ("shape", "stride", "numel", "aligned")
BINARY: dict[type, Callable[[Any, Any], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
BITWISE: dict[type, Callable[[int, int], int]] = {
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.LShift: lambda number, bits: number << _check_shift(bits),
    ast.RShift: lambda number, bits: number >> _check_shift(bits),
}
COMPARE: dict[type, Callable[[Number, Number], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


@lru_cache(maxsize=4096)
def _compile_text(text: str) -> Compiled:
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        raise ExpressionError(f"an expression is a string of at most {MAX_LENGTH} characters")
    try:
        tree = parse_python(text.strip(), "eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"not an expression: {text!r}") from None
    try:
        return _compile_node(tree.body, 0)
    except ExpressionError as error:
        raise ExpressionError(f"{error}, in {text!r}") from None


def _compile_node(node: ast.expr, depth: int) -> Compiled:
    """The node as a function of the scope. Raises ExpressionError for a node that is not allowed."""
    if depth > MAX_DEPTH:
        raise ExpressionError("an expression nests too deeply")

    def compile_all(*inner: ast.expr) -> list[Compiled]:
        return [_compile_node(item, depth + 1) for item in inner]

    match node:
        case ast.Constant(value=bool() | int() | float() as number):
            _check_magnitude(number)
            return lambda scope: number
        case ast.Name(id=name):
            return lambda scope: _look_up(name, scope)
        case ast.Tuple(elts=items):
            parts = compile_all(*items)
            return lambda scope: tuple(_as_number(part(scope)) for part in parts)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
            operation, sides = BINARY[type(op)], compile_all(left, right)
            return lambda scope: _apply(operation, *(_as_number(side(scope)) for side in sides))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BITWISE:
            bitwise, sides = BITWISE[type(op)], compile_all(left, right)
            return lambda scope: _apply(bitwise, *(_as_integer(side(scope)) for side in sides))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            (inner,) = compile_all(operand)
            return lambda scope: -_as_number(inner(scope))
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            (inner,) = compile_all(operand)
            return lambda scope: -_as_integer(inner(scope)) - 1
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            (inner,) = compile_all(operand)
            return lambda scope: not inner(scope)
        case ast.BoolOp(op=op, values=values):
            conditions, join = compile_all(*values), all if isinstance(op, ast.And) else any
            return lambda scope: join(bool(condition(scope)) for condition in conditions)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARE:
            compare, sides = COMPARE[type(op)], compile_all(left, right)
            return lambda scope: compare(*(_as_number(side(scope)) for side in sides))
        case ast.IfExp(test=test, body=body, orelse=orelse):
            condition, then, other = compile_all(test, body, orelse)
            return lambda scope: then(scope) if condition(scope) else other(scope)
        case ast.Call(func=ast.Name(id=name), args=[first, *_] as args, keywords=[]):
            if name not in (*FUNCTIONS, *_OF_TENSORS, "grid"):
                raise ExpressionError(f"unknown function {name!r}")
            tensor, numbers = first.id if isinstance(first, ast.Name) else "", compile_all(*args)
            return lambda scope: _call_function(name, tensor, numbers, scope)
    raise ExpressionError(f"{type(node).__name__} is not allowed")


def _as_number(value: Result) -> Number:
    if isinstance(value, tuple):
        raise ExpressionError("a tuple where a number is needed")
    return value


def _as_integer(value: Result) -> int:
    number = _as_number(value)
    if isinstance(number, float):
        raise ExpressionError(f"the float {number} where an integer is needed: write int(...)")
    return number


def _check_magnitude(value: Number) -> Number:
    if not abs(value) <= MAX_MAGNITUDE:
        raise ExpressionError("a number beyond 2**62")
    return value


def _check_shift(bits: int) -> int:
    if not 0 <= bits <= MAX_SHIFT:
        raise ExpressionError(f"a shift by {bits} bits, where 0 to {MAX_SHIFT} are allowed")
    return bits


def _apply(function: Callable[..., Number], *values: Number) -> Number:
    try:
        return _check_magnitude(function(*values))
    except ZeroDivisionError:
        raise ExpressionError("division by zero") from None
    except (OverflowError, ValueError):
        raise ExpressionError("a number that is infinite or none") from None


def _look_up(name: str, scope: Scope) -> Number:
    if name == "num_sms":
        return scope.num_sms
    if name not in scope.args:
        raise ExpressionError(f"{name!r} is not an argument of this kernel")
    value = scope.args[name]
    if not isinstance(value, (int, float)):
        raise ExpressionError(f"{name!r} is not a number")
    return value


def _call_function(name: str, argument: str, numbers: list[Compiled], scope: Scope) -> Number:
    """Calls a function; argument is the name of its first argument, empty if that is not a name."""
    if name in FUNCTIONS:
        function, count = FUNCTIONS[name]
        if count not in (None, len(numbers)):
            raise ExpressionError(f"{name} takes {count} numbers")
        read = _as_integer if name in _OF_INTEGERS else _as_number
        return _apply(function, *(read(number(scope)) for number in numbers))
    if name == "grid" and len(numbers) == 1:
        grid = scope.grid() if callable(scope.grid) else scope.grid
        if grid is None:
            raise ExpressionError("the launcher's grid is not known here")
        axis = _as_integer(numbers[0](scope))
        return grid[axis] if 0 <= axis < len(grid) else 1
    if name == "grid" or not argument:
        raise ExpressionError(
            f"{name} takes {'the number of an axis' if name == 'grid' else 'a tensor argument first'}"
        )
    tensor = scope.args.get(argument)
    if not isinstance(tensor, TensorFact):
        raise ExpressionError(f"{argument!r} is not a tensor argument")
    if name == "numel":
        return math.prod(tensor.shape)
    if name == "aligned":
        return tensor.aligned
    axis = _as_integer(numbers[1](scope)) if len(numbers) == 2 else -99
    sizes = tensor.shape if name == "shape" else tensor.stride
    if not -len(sizes) <= axis < len(sizes):
        raise ExpressionError(f"{argument!r} has {len(sizes)} axes")
    return sizes[axis]
