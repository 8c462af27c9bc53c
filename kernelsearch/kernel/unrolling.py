"""Counts what a kernel makes its compiler do, before one sees it: unrolled loops, inlined helpers, constants.

Functions are read as Triton's front end reads them: with the values of their constexprs, `static_range` turn by turn,
helpers at each call. What is not known while compiling stays unknown.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from kernelsearch.core.errors import ExpressionError
from kernelsearch.core.parsing import parse_python
from kernelsearch.kernel.expressions import BINARY, BITWISE, COMPARE, FUNCTIONS

MAX_STEPS = 200_000
"""Syntax nodes that the front end may visit, each as often as it does; it takes half a minute for so many."""
MAX_BITS = 256
MAX_ITEMS = 4096
"""Items of a tuple, with those of the tuples in it, and characters of a text."""


class Excess(Exception):
    """What a compiler would have to do without end, in words."""


class Items(int):
    """A tuple or a text: how many items it has."""


@lru_cache(maxsize=4096)
def find_excess(code: str, function: str, known: tuple[tuple[str, Any], ...] = ()) -> str:
    """Why a function would be too much for a compiler under these values of its constexprs; empty if it is not."""
    values = {n: Items(len(v)) if isinstance(v, (tuple, str)) else v for n, v in known}
    try:
        _Counter(parse_python(code).body).call(
            function, {n: v for n, v in values.items() if isinstance(v, (int, float))}
        )
    except (Excess, RecursionError) as excess:
        return f"{function} {excess if isinstance(excess, Excess) else 'nests too deeply'}"
    return ""


def fold(node: ast.expr, known: Mapping[str, Any]) -> Any:
    """The number that an expression is known to be while compiling; None for anything else."""
    try:
        found = _Counter([]).value(node, dict(known))
    except Excess:
        return None
    return None if isinstance(found, Items) else found


def _raise(base: Any, power: Any) -> Any:
    if isinstance(base, int) and isinstance(power, int):
        _check_bits((abs(base).bit_length() - 1) * power)
    return base**power


def _shift(number: int, bits: int) -> int:
    _check_bits(bits)
    return number << bits


def _check_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise Excess(f"makes a number beyond 2**{MAX_BITS} while it is compiled")


_OPERATIONS: Mapping[type, Callable[..., Any]] = {**BINARY, **BITWISE, **COMPARE} | {
    ast.Pow: _raise,
    ast.LShift: _shift,
    ast.RShift: operator.rshift,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
_FUNCTIONS = {name: function for name, (function, _) in FUNCTIONS.items()}
_FUNCTIONS |= dict.fromkeys(("constexpr", "tuple"), lambda value: value)


class _Counter:
    """Reads functions with what is known of their names; raises Excess when that becomes too much."""

    def __init__(self, file: list[ast.stmt]) -> None:
        self.functions = {s.name: s for s in file if isinstance(s, ast.FunctionDef)}
        self.constants: dict[str, Any] = {}
        self.steps = 0
        self.run([s for s in file if isinstance(s, ast.Assign)], self.constants)

    def step(self) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise Excess(f"is too much to compile: over {MAX_STEPS:,} steps, its loops and helpers unrolled")

    def call(self, name: str, known: dict[str, Any]) -> None:
        self.run(self.functions[name].body, known)

    def run(self, body: list[ast.stmt], known: dict[str, Any]) -> None:
        """Counts statements; known changes as they bind names."""
        for node in body:
            self.step()
            match node:
                case ast.For(target=ast.Name(id=name), iter=ast.Call() as loop) if turns := self.turns(loop, known):
                    for known[name] in turns:
                        self.run(node.body, known)
                case ast.If(test=test, body=then, orelse=other) if (chosen := self.value(test, known)) is not None:
                    self.run(then if chosen else other, known)
                case ast.If(body=then, orelse=other):
                    for part in (then, other):
                        self.run(part, dict(known))
                    _forget(node, known)
                case ast.For(body=inner) | ast.While(body=inner):  # the front end reads a device's loop twice
                    _forget(node, known)
                    for _ in range(2):
                        self.run(inner, dict(known))
                case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                    known[name] = self.apply(op, known.get(name), self.value(value, known))
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    known[name] = self.value(value, known)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    known[name] = self.value(value, known)
                case _:
                    for child in ast.iter_child_nodes(node):
                        self.value(child, known)
                    _forget(node, known)

    def turns(self, loop: ast.Call, known: dict[str, Any]) -> range | None:
        """The turns of a loop that is unrolled; None for one that is not, or whose ends are not known."""
        given = [*loop.args, *(k.value for k in sorted(loop.keywords, key=lambda k: k.arg or ""))]
        ends = [self.value(node, known) for node in given]
        try:
            return range(*ends) if _name_of(loop) == "static_range" else None
        except (TypeError, ValueError):
            return None

    def value(self, node: ast.AST, known: dict[str, Any]) -> Any:
        """The number, or the count of items, that a node is while compiling; None where that is not known."""
        self.step()
        match node:
            case ast.Constant(value=bool() | int() | float() | str() as value):
                return Items(len(value)) if isinstance(value, str) else value
            case ast.Name(id=name):
                if name in self.functions and name not in known:  # called, or handed on to be called
                    self.call(name, {})
                return known.get(name, self.constants.get(name))
            case ast.IfExp(test=test, body=then, orelse=other) if (chosen := self.value(test, known)) is not None:
                return self.value(then if chosen else other, known)
            case ast.Call(func=ast.Name(id=name)) if name in self.functions:
                given = zip((p.arg for p in self.functions[name].args.args), node.args, strict=False)
                named = ((k.arg or "", k.value) for k in node.keywords)
                self.call(name, {p: self.value(v, known) for p, v in (*given, *named)})
                return None
        parts = [self.value(inner, known) for inner in ast.iter_child_nodes(node) if not isinstance(inner, _MARKS)]
        match node:
            case ast.Tuple() | ast.List():
                return _limit(Items(sum(p if isinstance(p, Items) else 1 for p in parts)))
            case ast.BinOp(op=op) | ast.UnaryOp(op=op) | ast.Compare(ops=[op]):
                return self.apply(op, *parts)
            case ast.Call(keywords=[]) if function := _FUNCTIONS.get(_name_of(node)):
                return _compute(function, *parts[1:])
            case ast.keyword():
                return parts[0]
        return None

    @staticmethod
    def apply(op: ast.AST, *values: Any) -> Any:
        return _compute(_OPERATIONS[type(op)], *values) if type(op) in _OPERATIONS else None


_MARKS = (ast.operator, ast.unaryop, ast.cmpop, ast.boolop, ast.expr_context)


def _compute(function: Callable[..., Any], *values: Any) -> Any:
    """What a function gives; tuples and texts are only added and repeated."""
    try:
        result = None if None in values else function(*values)
    except (ArithmeticError, TypeError, ValueError, ExpressionError):
        return None
    if any(isinstance(v, Items) for v in values):
        result = Items(result) if type(result) is int else None
    return _limit(result)


def _limit(value: Any) -> Any:
    if isinstance(value, Items) and value > MAX_ITEMS:
        raise Excess(f"makes a tuple or a text of more than {MAX_ITEMS:,} items while it is compiled")
    if isinstance(value, int):
        _check_bits(value.bit_length())
    return value


def _forget(node: ast.AST, known: dict[str, Any]) -> None:
    """Makes every name unknown that a statement binds."""
    for name in [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]:
        known.pop(name, None)


def _name_of(call: ast.Call) -> str:
    return str(getattr(call.func, "attr", None) or getattr(call.func, "id", ""))
