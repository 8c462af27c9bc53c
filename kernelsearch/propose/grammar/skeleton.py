"""The parent's own expression with one part replaced: the smallest change, and the one that most edits are.

Every part whose kind is known may become another expression of that kind. All else is the parent's own text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.grammar.expressions import UNARY, Expressions
from kernelsearch.propose.grammar.infer import Place, Reader
from kernelsearch.propose.grammar.kinds import FLOAT, Kind
from kernelsearch.propose.grammar.rules import Draft, Ref

_ARGUMENTS = {
    "load": ("pointer", "mask"),
    "store": ("pointer", "value", "mask"),
    "where": ("condition", "x", "y"),
    "dot": ("input", "other", "acc"),
    "atomic_add": ("pointer", "val", "mask"),
    "atomic_max": ("pointer", "val", "mask"),
    "atomic_min": ("pointer", "val", "mask"),
    "maximum": ("x", "y"),
    "minimum": ("x", "y"),
    "sum": ("input",),
    "max": ("input",),
    "min": ("input",),
    **{n: ("x",) for n in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "erf", "sigmoid", "abs", "floor", "ceil")},
}
"""Arguments of `tl` functions that are expressions of their own, in order."""

_HINTS = {
    "load": {"cache_modifier": ".cg", "eviction_policy": "evict_first"},
    "store": {"cache_modifier": ".cs", "eviction_policy": "evict_first"},
}


@dataclass(frozen=True)
class Part:
    """One part of an expression: the text around it, its kind, whether something binds to it, and its own parts.

    kind is None where nothing is known of it, so that only its own parts may change. also is another kind that would do;
    compound says that the part needs parentheses beside an operator.
    """

    before: str
    after: str
    own: Own
    tight: bool
    compound: bool
    also: Kind | None = None


@dataclass(frozen=True)
class Own:
    """An expression of the parent: its text, its kind, its parts; hinted are texts with more hints to the caches.

    rest is what follows the name of a function of one float, which another such function may take.
    """

    text: str
    kind: Kind | None
    parts: tuple[Part, ...]
    hinted: tuple[str, ...]
    rest: str


def skeleton(expressions: Expressions, place: Place, level: int) -> Ref | None:
    """The value of the place's statement as it is written, or with one of its parts replaced by another of its kind."""
    own = _plan(place)
    return expressions.rules.add([(own.text,), *_changed(expressions, own, min(level, 2)), *_wrapped(expressions, own)])


@lru_cache(maxsize=4096)
def _plan(place: Place) -> Own:
    node = place.node.value  # type: ignore[attr-defined]
    text = tree.text_of(node).replace("'", '"')
    return _own(Reader(place.scope), tree.expression(text), text)


def _own(reader: Reader, node: ast.expr, text: str) -> Own:
    kind = reader.kind(node)
    parts = []
    for child, tight in _children(node) if text.isascii() and "\n" not in text else ():
        start, end = child.col_offset - node.col_offset, (child.end_col_offset or 0) - node.col_offset
        inner = _own(reader, child, text[start:end])
        also = Kind(FLOAT, inner.kind.shape) if _is_stored(node, child) and inner.kind and inner.kind.is_float else None
        compound = isinstance(child, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp))
        parts.append(Part(text[:start], text[end:], inner, tight, compound, also))
    name = tree.called(node).removeprefix("tl.")
    rest = text[len(f"tl.{name}(") :] if kind and kind.dtype == FLOAT and name in UNARY else ""
    return Own(text, kind, tuple(parts), _hinted(node, text), rest)


def _is_stored(node: ast.expr, child: ast.expr) -> bool:
    return tree.is_tl(node, "store") and child is tree.argument(node, 1, "value")  # type: ignore[arg-type]


def _changed(expressions: Expressions, own: Own, level: int) -> list[Draft]:
    """Alternatives in which exactly one part differs."""
    drafts: list[Draft] = [(text,) for text in own.hinted]
    if own.rest:
        drafts.append((expressions.rules.one_of(f"tl.{name}(" for name in UNARY), own.rest))
    for part in own.parts:
        deeper = expressions.rules.add(_changed(expressions, part.own, level))
        kinds = [part.own.kind, *([part.also] if part.also else [])]
        drafts += [
            (part.before, new, part.after) for new in (deeper, *(_other(expressions, part, k, level) for k in kinds))
        ]
        if part.own.kind and part.own.kind.dtype == FLOAT:
            wrapped = expressions.rules.add(_wrapped(expressions, part.own, part.compound))
            ends = ("(", ")") if part.tight else ("", "")
            drafts.append((part.before + ends[0], wrapped, ends[1] + part.after))
    return drafts


def _wrapped(expressions: Expressions, own: Own, compound: bool = True) -> list[Draft]:
    """The expression with one more operation around it."""
    kind = own.kind
    if kind is None or kind.dtype != FLOAT or kind.const or kind.pointer:
        return []
    text = f"({own.text})" if compound else own.text
    return [(text, expressions.rules.one_of((" + ", " - ", " * ", " / ")), expressions.loose(kind, 0))]


def _other(expressions: Expressions, part: Part, kind: Kind | None, level: int) -> Ref | None:
    """Expressions of a part's kind, to stand in its place."""
    if kind is None or (kind.const and (kind.dtype != FLOAT or kind.shape)):
        return None
    if kind.const:
        return expressions.floats()
    return (expressions.tight if part.tight else expressions.value)(kind, level - 1)


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
    """The access with a hint to the caches, where it has none: ptxas refuses both on one access."""
    head, _, name = tree.called(node).rpartition(".")
    if head != "tl" or name not in _HINTS or not isinstance(node, ast.Call):
        return ()
    if _HINTS[name].keys() & {k.arg for k in node.keywords}:
        return ()
    return tuple(f'{text[:-1]}, {hint}="{value}")' for hint, value in _HINTS[name].items())
