"""Branches that a launch decides: `if HAS_BIAS:` with the value that every launch passes; the turns of loops over a
`tl.static_range` whose length it decides; and pairs taken apart.

A folded function holds for these values only, so that the caller adds the conditions to the function as assertions.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from kernelsearch.core.types import LaunchFact, TensorFact
from kernelsearch.kernel.expressions import BINARY, COMPARE
from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.flow import find_unbound

_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {**COMPARE, ast.Is: operator.is_, ast.IsNot: operator.is_not}
_ARITHMETIC = {**BINARY, ast.BitAnd: operator.and_, ast.BitOr: operator.or_}
MOST_TURNS = 16
"""Turns of a loop that are written out."""
_PRESENT = object()
"""Stands for an argument that is not None, and of which nothing else is known."""


@dataclass
class _Undecided(Exception):
    """An expression has no value before the launch."""


def read_launched(launches: Iterable[LaunchFact], constexprs: Iterable[str], tuned: Iterable[str]) -> dict[str, Any]:
    """The values that all launches pass: of constexprs that nobody tunes, and None or not None of the others."""
    known: dict[str, list[Any]] = {}
    every, fixed = list(launches), set(constexprs) - set(tuned)
    for launch in every:
        for name, value in launch.args.items():
            plain = value is None or (name in fixed and isinstance(value, (bool, int, str)))
            if plain or isinstance(value, TensorFact):
                known.setdefault(name, []).append(value if plain else _PRESENT)
    alike = {name: v[0] for name, v in known.items() if len(v) == len(every) and all(w is v[0] or w == v[0] for w in v)}
    return {name: value for name, value in alike.items() if len({type(v) for v in known[name]}) == 1}


def fold_branches(text: str, known: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """The function without branches and static loops that the known values decide, and under which conditions it is."""
    used: set[str] = set()
    node = tree.function_of(text)
    names = {name: value for name, value in known.items() if name not in tree.writes(node.body)}
    before = ast.unparse(node)
    folded = tree.rebuild(node, _fold_block(node.body, names, used))
    if before == ast.unparse(folded.node):
        return None
    return folded.text(), [_condition(name, known[name]) for name in sorted(used)]


def _condition(name: str, value: Any) -> str:
    if value is None or value is _PRESENT:
        return f"{name} is None" if value is None else f"{name} is not None"
    return f"{name} == {value!r}"


def _fold_block(block: list[ast.stmt], known: Mapping[str, Any], used: set[str]) -> list[ast.stmt]:
    body: list[ast.stmt] = []
    for stmt in block:
        if isinstance(stmt, ast.If) and (decided := _decide(stmt.test, known, used)) is not None:
            body += _fold_block(stmt.body if decided else stmt.orelse, known, used)
            continue
        if isinstance(stmt, ast.For) and (turns := _write_turns(stmt, known, used)) is not None:
            body += _fold_block(turns, known, used)
            continue
        for name in ("body", "orelse"):
            if inner := getattr(stmt, name, None):
                setattr(stmt, name, _fold_block(inner, known, used) or ([ast.Pass()] if name == "body" else []))
        body.append(tree.transform(stmt, lambda n: _choose(n, known, used)))
    return body


def _write_turns(loop: ast.For, known: Mapping[str, Any], used: set[str]) -> list[ast.stmt] | None:
    """The statements of all turns of a loop that the compiler unrolls; None if they are not known, or too many.

    What a turn assigns for itself has a name of its own in all but the last.
    """
    if tree.callee(loop.iter) != "tl.static_range" or not isinstance(loop.target, ast.Name):
        return None
    needed: set[str] = set()
    try:
        bounds = [_value(bound, known, needed) for bound in loop.iter.args]  # type: ignore[attr-defined]
    except (_Undecided, TypeError, ZeroDivisionError):
        return None
    plain = bool(bounds) and all(type(bound) is int for bound in bounds) and not loop.iter.keywords  # type: ignore[attr-defined]
    turns = range(*bounds) if plain and (len(bounds) < 3 or bounds[2]) else range(MOST_TURNS + 1)
    place = loop.target.id
    if len(turns) > MOST_TURNS or place in tree.writes(loop.body):
        return None
    used |= needed
    own = tree.writes(loop.body) - find_unbound(loop.body, {place}).keys()
    body: list[ast.stmt] = []
    for turn in turns:
        names = {name: f"{name}_turn_{turn}".replace("-", "m") for name in own} if turn != turns[-1] else {}
        number = tree.expression(str(turn))
        body += [tree.substitute(tree.rename(s, names), {place: number}) for s in loop.body]
    return [*body, *tree.statements(f"{place} = {turns[-1]}\n" if turns else "")]


def _choose(node: ast.AST, known: Mapping[str, Any], used: set[str]) -> ast.AST | None:
    """The side that a conditional expression takes, if that is decided."""
    if isinstance(node, ast.IfExp) and (decided := _decide(node.test, known, used)) is not None:
        return node.body if decided else node.orelse
    return None


def _decide(test: ast.expr, known: Mapping[str, Any], used: set[str]) -> bool | None:
    """The truth of a condition, whose names are added to used; None if it is not decided before the launch."""
    needed: set[str] = set()
    try:
        value = bool(_value(test, known, needed))
    except (_Undecided, TypeError, ZeroDivisionError):
        return None
    used |= needed
    return value


def _value(node: ast.expr, known: Mapping[str, Any], needed: set[str]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name) if name in known and known[name] is not _PRESENT:
            needed.add(name)
            return known[name]
        case ast.Compare(
            left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]
        ):
            if known.get(name, _Undecided) is _PRESENT:
                needed.add(name)
                return isinstance(op, ast.IsNot)
            return _COMPARISONS[type(op)](_value(node.left, known, needed), None)
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
            return _COMPARISONS[type(op)](_value(left, known, needed), _value(right, known, needed))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](_value(left, known, needed), _value(right, known, needed))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, known, needed)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, known, needed)
        case ast.BoolOp(op=op, values=values):
            return _join(op, values, known, needed)
    raise _Undecided


def _join(op: ast.boolop, values: list[ast.expr], known: Mapping[str, Any], needed: set[str]) -> bool:
    """The value of `and` or `or`: one side may decide it alone."""
    stops, undecided = isinstance(op, ast.Or), False
    for value in values:
        own: set[str] = set()
        try:
            if bool(_value(value, known, own)) is stops:
                needed |= own
                return stops
            needed |= own
        except _Undecided:
            undecided = True
    if undecided:
        raise _Undecided
    return not stops


def name_versions(text: str, fresh: Callable[[str], str]) -> str | None:
    """The function where each value that a block gives one name in turn has a name of its own; the last keeps it."""
    patch = tree.Patch(text)
    body = tree.strip_docstrings(patch.node.body)
    simple = [s for s in tree.all_statements(body) if not hasattr(s, "body")]
    params = {a.arg for a in patch.node.args.args}
    for block in tree.blocks(body):
        for name in sorted({p[0] for p in map(tree.assignment, block) if p} - params):
            places = [at for at, s in enumerate(block) if name in tree.writes(s)]
            plain = all(isinstance(block[at], ast.Assign) and tree.assignment(block[at]) for at in places)
            writers = [s for s in simple if name in tree.writes(s)]
            if len(places) < 2 or not plain or len(writers) != len(places):
                continue
            if name in tree.reads([*block[: places[0]], block[places[0]].value]):  # type: ignore[attr-defined]
                continue
            for at, after in pairwise(places):
                new = fresh(name)
                for node in (n for s in (*block[at + 1 : after], block[after].value) for n in ast.walk(s)):  # type: ignore
                    if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
                        patch.replace_expr(node, new)
                patch.replace_expr(block[at].targets[0], new)  # type: ignore[attr-defined]
            return name_versions(patch.text(), fresh) or patch.text()
    return None


def split_pairs(text: str) -> str | None:
    """The function with `a, b = x, y` as two statements, where no value needs a name assigned before it."""
    patch = tree.Patch(text)
    for stmt in tree.all_statements(patch.node.body):
        match stmt:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(values):
                plain = all(isinstance(n, ast.Name) for n in names)
                early = [tree.writes(names[:at]) & tree.reads(value) for at, value in enumerate(values)]
                if plain and not any(early):
                    pairs = zip(names, values, strict=True)
                    patch.replace_stmt(stmt, "".join(f"{tree.text_of(n)} = {tree.text_of(v)}\n" for n, v in pairs))
    return None if patch.is_empty else patch.text()
