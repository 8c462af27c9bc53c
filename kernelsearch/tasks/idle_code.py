"""Finds code of a seed that does nothing, or that a kernel file must write plainly: the nodes with their new text.

Prints, assertions that only a debug build checks and unused values are left out; computed messages are emptied;
`float("1e-6")` and computed defaults become plain numbers. `evict_last` changes no result, but what it keeps in L2
would speed up the kernel that is timed next: the seed is timed without it, and a note says so.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType

import triton.language as tl

from kernelsearch.kernel.language import MAX_TEXT

SILENT = frozenset({"print", "tl.static_print", "tl.device_print", "tl.device_assert"})
"""Calls that do nothing to a result; Triton drops assertions on the device unless it is told to debug."""

LITERALS = (bool, int, float, str)


NameOf = Callable[[ast.expr], str]
"""The canonical name of a called function: `tl.load`, `print`."""


def find_idle_statements(body: list[ast.stmt], name_of: NameOf) -> Iterator[tuple[ast.stmt, str]]:
    """The statements of a suite, and of those within, that do nothing; the text is `pass` where a suite needs one."""
    idle = [node for node in body if _is_idle(node, name_of)]
    for node in idle:
        yield node, "pass" if len(idle) == len(body) and node is idle[0] else ""
    for node in body:
        if node not in idle:
            yield from _find_within(node, name_of)


def _find_within(node: ast.stmt, name_of: NameOf) -> Iterator[tuple[ast.stmt, str]]:
    yield from find_idle_statements(getattr(node, "body", []), name_of)
    match getattr(node, "orelse", []):
        case [ast.If(col_offset=node.col_offset) as branch]:  # `elif`: it stays, with what is in it
            yield from _find_within(branch, name_of)
        case others:
            yield from find_idle_statements(others, name_of)


def find_plainer(function: ast.FunctionDef, name_of: NameOf) -> Iterator[tuple[ast.expr, str]]:
    """The expressions of a function that a kernel file must write differently, outermost first."""
    compared = {id(side) for n in ast.walk(function) if isinstance(n, ast.Compare) for side in (n.left, *n.comparators)}
    for node in ast.walk(function):
        match node:
            case ast.Call(func=called) if name_of(called) == "tl.static_assert":
                messages = (*node.args[1:], *(k.value for k in node.keywords if k.arg == "msg"))
                yield from ((m, "''") for m in messages if not _is_short_text(m))
            case ast.Call(func=called, args=[ast.Constant(value=str(text))]) if name_of(called) == "float":
                if number := _read_number(text):
                    yield node, number
            case ast.Constant(value="evict_last") if id(node) not in compared:
                yield node, "''"


def find_defaults(function: FunctionType, node: ast.FunctionDef) -> Iterator[tuple[ast.expr, str]]:
    """The parameter defaults that evaluate to literals, written as these literals."""
    defaults = (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None))
    given = [p.default for p in inspect.signature(function).parameters.values() if p.default is not p.empty]
    for default, value in zip(defaults, given, strict=True):
        value = value.value if isinstance(value, tl.constexpr) else value
        if type(value) in LITERALS and value == value and not isinstance(default, ast.Constant):
            yield default, ast.unparse(ast.Constant(value))


def _is_idle(node: ast.stmt, name_of: NameOf) -> bool:
    match node:
        case ast.Pass() | ast.Assert():
            return True
        case ast.Expr(value=ast.Call(func=called)):
            return name_of(called) in SILENT
        case ast.Expr(value=value):
            return not isinstance(value, ast.Constant) and not _has_effect(value)
        case ast.If(test=test, body=body, orelse=orelse):
            return not _has_effect(test) and all(_is_idle(inner, name_of) for inner in (*body, *orelse))
    return False


def _has_effect(node: ast.expr) -> bool:
    return any(isinstance(n, (ast.Call, ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)) for n in ast.walk(node))


def _is_short_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= MAX_TEXT


def _read_number(text: str) -> str:
    """The number as Python writes it, empty for `inf`, `nan` and anything that is not a number."""
    try:
        number = float(text)
    except ValueError:
        return ""
    return repr(number) if abs(number) < float("inf") else ""
