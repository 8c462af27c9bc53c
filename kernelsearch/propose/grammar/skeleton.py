"""The parent's own expression with one part replaced: the smallest change, and the one that most edits are.

Every part whose kind is known may become another expression of that kind. All else is the parent's own text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.kinds import FLOAT, ValueKind
from kernelsearch.propose.analysis.reader import KindReader
from kernelsearch.propose.grammar.expressions import UNARY, Expressions
from kernelsearch.propose.grammar.rules import Draft, Ref
from kernelsearch.propose.grammar.source_page import StatementPlace

_ARGUMENTS = {
    "load": ("pointer", "mask"),
    "store": ("pointer", "value", "mask"),
    "where": ("condition", "x", "y"),
    "dot": ("input", "other", "acc"),
    **dict.fromkeys(("atomic_add", "atomic_max", "atomic_min"), ("pointer", "val", "mask")),
    **dict.fromkeys(("maximum", "minimum"), ("x", "y")),
    **dict.fromkeys(("sum", "max", "min"), ("input",)),
    **dict.fromkeys((*UNARY, "ceil"), ("x",)),
}
"""Arguments of `tl` functions that are expressions of their own, in order."""

_HINTS = {
    "load": {"cache_modifier": ".cg", "eviction_policy": "evict_first"},
    "store": {"cache_modifier": ".cs", "eviction_policy": "evict_first"},
}


def add_skeleton(expressions: Expressions, place: StatementPlace, level: int) -> Ref | None:
    """The value of the place's statement as it is written, or with one of its parts replaced by another of its kind."""
    return _Skeleton(expressions, place, min(level, 2)).rule()


@lru_cache(maxsize=1024)
def _parse_value(place: StatementPlace) -> tuple[ast.expr, str, dict[int, ValueKind]]:
    """The value of a place's statement, its text on one line, and the kinds of its parts."""
    text = tree.text_of(place.node.value).replace("'", '"')  # type: ignore[attr-defined]
    node, reader = tree.expression(text), KindReader(place.scope)
    reader.kind(node)
    return node, text, {at: kind for at, kind in reader.by_node.items() if kind.is_known}


class _Skeleton:
    def __init__(self, expressions: Expressions, place: StatementPlace, level: int) -> None:
        self.expressions, self.rules, self.level = expressions, expressions.rules, level
        self.node, self.source, self.kinds = _parse_value(place)

    def rule(self) -> Ref | None:
        return self.rules.add([(self.source,), *self._change_part(self.node), *self._wrap(self.node, compound=True)])

    def _text(self, node: ast.expr) -> str:
        return self.source[node.col_offset : node.end_col_offset]

    def _change_part(self, node: ast.expr) -> list[Draft]:
        """Texts of an expression in which exactly one part differs."""
        kind, text = self.kinds.get(id(node)), self._text(node)
        name = tree.callee(node).removeprefix("tl.")
        drafts: list[Draft] = [(hinted,) for hinted in _add_hint(node, text)]
        if kind and kind.dtype == FLOAT and name in UNARY:
            drafts.append((self.rules.one_of(f"tl.{other}(" for other in UNARY), text[len(f"tl.{name}(") :]))
        for child, tight in _children(node) if self.source.isascii() and "\n" not in self.source else ():
            before = self.source[node.col_offset : child.col_offset]
            after = self.source[child.end_col_offset : node.end_col_offset]
            stored = tree.is_tl(node, "store") and child is tree.argument(node, 1, "value")  # type: ignore[arg-type]
            others = [
                self.rules.add(self._change_part(child)),
                *self._alternatives(self.kinds.get(id(child)), tight, stored),
            ]
            drafts += [(before, other, after) for other in others]
            compound = isinstance(child, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.IfExp))
            wrapped = self.rules.add(self._wrap(child, compound))
            drafts.append((before, "(" if tight else "", wrapped, ")" if tight else "", after))
        return drafts

    def _alternatives(self, kind: ValueKind | None, tight: bool, stored: bool) -> Iterator[Ref | None]:
        """Expressions of a part's kind, to stand in its place; what is stored may be a float32 too."""
        if kind is None:
            return
        if kind.const:
            yield self.expressions.floats() if kind.dtype == FLOAT and not kind.shape else None
            return
        form = self.expressions.tight if tight else self.expressions.value
        yield form(kind, self.level - 1)
        if stored and kind.is_float:
            yield form(ValueKind(FLOAT, kind.shape), self.level - 1)

    def _wrap(self, node: ast.expr, compound: bool) -> list[Draft]:
        """The expression with one more operation around it."""
        kind, text = self.kinds.get(id(node)), self._text(node)
        if kind is None or kind.dtype != FLOAT or kind.const or kind.pointer:
            return []
        operator = self.rules.one_of((" + ", " - ", " * ", " / "))
        return [(f"({text})" if compound else text, operator, self.expressions.loose(kind, 0))]


def _children(node: ast.expr) -> Iterator[tuple[ast.expr, bool]]:
    """(part, whether an operator or a method stands beside it) of one expression."""
    match node:
        case ast.BinOp(left=left, right=right) | ast.Compare(left=left, comparators=[right]):
            yield left, True
            yield right, True
        case ast.UnaryOp(operand=part) | ast.Subscript(value=part):
            yield part, True
        case ast.Call(func=ast.Attribute(value=value, attr="to")) if not tree.callee(node).startswith("tl."):
            yield value, True
        case ast.Call():
            head, _, name = tree.callee(node).rpartition(".")
            for position, argument in enumerate(_ARGUMENTS.get(name, ()) if head == "tl" else ()):
                part = tree.argument(node, position, argument)
                if part is not None:
                    yield part, False


def _add_hint(node: ast.expr, text: str) -> tuple[str, ...]:
    """The access with a hint to the caches, where it has none: ptxas refuses both on one access."""
    head, _, name = tree.callee(node).rpartition(".")
    if head != "tl" or name not in _HINTS or not isinstance(node, ast.Call):
        return ()
    if _HINTS[name].keys() & {k.arg for k in node.keywords}:
        return ()
    return tuple(f'{text[:-1]}, {hint}="{value}")' for hint, value in _HINTS[name].items())
