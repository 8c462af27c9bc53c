"""The parent's own expression with one part replaced: the smallest change, and the one that most edits are.

Every part whose kind is known may become another expression of that kind. All else is the parent's own text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from kernelsearch.propose import tree
from kernelsearch.propose.grammar.expressions import Expressions
from kernelsearch.propose.grammar.infer import Place, Reader
from kernelsearch.propose.grammar.kinds import FLOAT, Kind
from kernelsearch.propose.grammar.rules import Draft, Ref

_ARGUMENTS = {
    "load": ("pointer", "mask"), "store": ("pointer", "value", "mask"), "where": ("condition", "x", "y"),
    "dot": ("input", "other", "acc"), "atomic_add": ("pointer", "val", "mask"),
    "atomic_max": ("pointer", "val", "mask"), "atomic_min": ("pointer", "val", "mask"), "maximum": ("x", "y"),
    "minimum": ("x", "y"), "sum": ("input",), "max": ("input",), "min": ("input",),
    **{n: ("x",) for n in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "erf", "sigmoid", "abs", "floor", "ceil")},
}  # fmt: skip
"""Arguments of `tl` functions that are expressions of their own, in order."""

_HINTS = {
    "load": (', cache_modifier=".cg"', ', eviction_policy="evict_first"'),
    "store": (', cache_modifier=".cs"', ', eviction_policy="evict_first"'),
}


@dataclass(frozen=True)
class Part:
    """One part of an expression: the text around it, its kind, whether something binds to it, and its own parts.

    kind is None where nothing is known of it, so that only its own parts may change. hints are whole texts.
    """

    before: str
    after: str
    kind: Kind | None
    tight: bool
    inner: tuple[Part, ...]
    hints: tuple[str, ...]


def skeleton(expressions: Expressions, place: Place, level: int) -> Ref | None:
    """The value of the place's statement as it is written, or with one of its parts replaced by another of its kind."""
    text, parts, hints = _plan(place)
    return expressions.rules.add([(text,), *_changed(expressions, parts, hints, min(level, 2))])


@lru_cache(maxsize=4096)
def _plan(place: Place) -> tuple[str, tuple[Part, ...], tuple[str, ...]]:
    text = tree.text_of(place.node.value)  # type: ignore[attr-defined]
    node = tree.expression(text)
    return text, _parts_of(Reader(place.scope), node, text), _hinted(node, text)


def _parts_of(reader: Reader, node: ast.expr, text: str) -> tuple[Part, ...]:
    found = []
    for child, tight in _children(node) if text.isascii() and "\n" not in text else ():
        start, end = child.col_offset - node.col_offset, (child.end_col_offset or 0) - node.col_offset
        own = text[start:end]
        kind = reader.kind(child)
        inner, hints = _parts_of(reader, child, own), _hinted(child, own)
        found.append(Part(text[:start], text[end:], _replaceable(kind, child), tight, inner, hints))
    return tuple(found)


def _replaceable(kind: Kind | None, node: ast.expr) -> Kind | None:
    if kind is None or (kind.const and (kind.dtype != FLOAT or kind.shape)):
        return None
    return kind


def _changed(expressions: Expressions, parts: tuple[Part, ...], hints: tuple[str, ...], level: int) -> list[Draft]:
    """Alternatives in which exactly one part differs."""
    drafts: list[Draft] = [(hint,) for hint in hints]
    for part in parts:
        deeper = expressions.rules.add(_changed(expressions, part.inner, part.hints, level))
        for new in (_other(expressions, part, level), deeper):
            drafts.append((part.before, new, part.after))
    return drafts


def _other(expressions: Expressions, part: Part, level: int) -> Ref | None:
    if part.kind is None:
        return None
    if part.kind.const:
        return expressions.floats()
    return (expressions.tight if part.tight else expressions.value)(part.kind, level - 1)


def _children(node: ast.expr) -> Iterator[tuple[ast.expr, bool]]:
    """(part, whether an operator or a method stands beside it) of one expression."""
    match node:
        case ast.BinOp(left=left, right=right):
            yield left, True
            yield right, True
        case ast.Compare(left=left, comparators=[right]):
            yield left, True
            yield right, True
        case ast.UnaryOp(operand=operand):
            yield operand, True
        case ast.Subscript(value=value):
            yield value, True
        case ast.Call(func=ast.Attribute(value=value, attr="to")) if not tree.called(node).startswith("tl."):
            yield value, True
        case ast.Call():
            head, _, name = tree.called(node).rpartition(".")
            for position, argument in enumerate(_ARGUMENTS.get(name, ()) if head == "tl" else ()):
                part = tree.argument(node, position, argument)
                if part is not None:
                    yield part, False


def _hinted(node: ast.expr, text: str) -> tuple[str, ...]:
    """The access with one more hint to the caches."""
    head, _, name = tree.called(node).rpartition(".")
    if head != "tl" or name not in _HINTS or not isinstance(node, ast.Call):
        return ()
    if any(k.arg in ("cache_modifier", "eviction_policy") for k in node.keywords):
        return ()
    return tuple(text[:-1] + hint + ")" for hint in _HINTS[name])
