"""Rules for whole statements at a place: what may stand where the parent's statement stands, and what before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.analysis.kinds import BOOL, FLOAT, INT, ValueKind
from kernelsearch.propose.analysis.reader import KindReader, Scope
from kernelsearch.propose.grammar.expressions import LOAD_HINTS, Expressions
from kernelsearch.propose.grammar.rules import Draft, Ref, Rules
from kernelsearch.propose.grammar.skeleton import add_skeleton
from kernelsearch.propose.grammar.source_page import StatementPlace
from kernelsearch.propose.grammar.universe import ATOMICS, Universe

LOOP_OPTIONS = tuple(
    f"{stages}{unroll})"
    for stages in ("", ", num_stages=1", ", num_stages=2", ", num_stages=3", ", num_stages=4")
    for unroll in ("", ", loop_unroll_factor=2", ", loop_unroll_factor=4")
)
STORE_HINTS = tuple(hint.replace(".cg", ".cs") for hint in LOAD_HINTS)
_NEEDLESS = tuple(f"tl.{name}" for name in "assume multiple_of max_contiguous debug_barrier static_assert".split())


@dataclass(frozen=True)
class Fresh:
    """A name that the parent does not use, with the kind that an answer may give it."""

    name: str
    kind: ValueKind


class Statements:
    """The statement rules of one place under its scope and the fresh names that are bound there."""

    def __init__(self, rules: Rules, place: StatementPlace, universe: Universe, fresh: tuple[Fresh, ...] = ()) -> None:
        self.rules, self.place, self.universe = rules, place, universe
        self.scope: Scope = {**place.scope, **{f.name: f.kind for f in fresh}}
        self.expressions = Expressions(rules, self.scope, universe, universe.loaded)
        self.indent = " " * place.indent
        self.memo: dict[object, Ref | None] = {}

    def instead(self, level: int) -> Ref | None:
        """Lines that may replace the parent's statement."""
        if level not in self.memo:
            self.memo[level] = self.rules.add((self.indent, *draft, "\n") for draft in self._instead(level))
        return self.memo[level]

    def fresh(self, fresh: Fresh, level: int) -> Ref | None:
        """The line that binds a fresh name."""
        if fresh not in self.memo:
            line = (self.indent, f"{fresh.name} = ", self.expressions.value(fresh.kind, level), "\n")
            self.memo[fresh] = self.rules.add([line])
        return self.memo[fresh]

    @property
    def may_go(self) -> bool:
        """True if the kernel still binds all its names, with the same kinds, when the statement is deleted."""
        pair = tree.assignment(self.place.node)
        if pair is not None:
            kind = self.place.scope.get(pair[0])
            return kind is not None and kind == self.place.after.get(pair[0])
        return tree.callee(getattr(self.place.node, "value", self.place.node)) in _NEEDLESS

    def _instead(self, level: int) -> Iterator[Draft]:
        node = self.place.node
        match node:
            case ast.Expr(value=ast.Call()) if tree.is_tl(node.value, "store", *ATOMICS[:3]):
                writer = Expressions(self.rules, self.scope, self.universe, self.universe.stored)
                yield (add_skeleton(writer, self.place, level),)
                if tree.is_tl(node.value, "store"):
                    yield from self._store(node.value, writer, level)
            case ast.For(iter=ast.Call()) if tree.range_of(node):
                yield from self._loop(node, level)
            case ast.If(test=test):
                kind = KindReader(self.scope).kind(test)
                yield (f"if {tree.text_of(test)}:",)
                if kind.is_known and kind.is_bool and not kind.const:
                    yield ("if ", self.expressions.value(ValueKind(BOOL), 1), ":")
            case ast.Return(value=ast.expr()):
                yield ("return ", add_skeleton(self.expressions, self.place, level))
            case _ if (pair := tree.assignment(node)) is not None:
                yield from self._assignment(node, pair[0], level)

    def _assignment(self, node: ast.stmt, name: str, level: int) -> Iterator[Draft]:
        head, kind = f"{name} = ", self.place.after.get(name)
        if kind is not None and kind.const:
            yield (head, self.expressions.floats() if kind.dtype == FLOAT else None)
        elif kind is not None:
            yield (head, self.expressions.value(kind, level))
        if isinstance(node, ast.AugAssign):
            head = tree.text_of(ast.AugAssign(node.target, node.op, ast.Constant(0))).removesuffix("0")
            added = KindReader(self.scope).known_kind(node.value)
            if added is not None and added.dtype == FLOAT and not added.const:
                yield (head, self.expressions.value(added, level - 1))
        yield (head, add_skeleton(self.expressions, self.place, level))

    def _store(self, call: ast.Call, writer: Expressions, level: int) -> Iterator[Draft]:
        """A store to an address of the same kind, masked where the parent masks; float32 is converted by Triton."""
        address = KindReader(self.scope).known_kind(tree.argument(call, 0, "pointer"))
        if address is None or not address.pointer:
            return
        stored = [ValueKind(address.dtype, address.shape)]
        stored += [ValueKind(FLOAT, address.shape)] if stored[0].is_float else []
        value = self.rules.add((self.expressions.value(kind, level - 1),) for kind in stored)
        mask, hints = self.expressions.value(ValueKind(BOOL, address.shape), 1), self.rules.one_of(STORE_HINTS)
        ends: list[Draft] = [(", mask=", mask, hints)]
        ends += [(hints,)] if address.is_scalar or not self.universe.masked else []
        yield ("tl.store(", writer.value(address, level - 1), ", ", value, self.rules.add(ends))

    def _loop(self, node: ast.For, level: int) -> Iterator[Draft]:
        """The same loop with other bounds or hints; its step stays, since it is the extent of a block."""
        bounds, head = tree.range_of(node), f"for {tree.text_of(node.target)} in "
        yield (f"{head}{tree.text_of(node.iter)}:",)
        reader = KindReader(self.scope)
        if tree.callee(node.iter) == "tl.static_range" or any(reader.kind(e).dtype != INT for e in bounds):
            return
        first, last = (
            self.rules.add([(tree.text_of(e),), (self.expressions.value(ValueKind(INT), level),)]) for e in bounds[:2]
        )
        step = f", {tree.text_of(bounds[2])}"
        own = [f", {k.arg}={tree.text_of(k.value)}" for k in node.iter.keywords if k.arg != "step"]
        yield (f"{head}tl.range(", first, ", ", last, step, self.rules.one_of([*LOOP_OPTIONS, "".join(own) + ")"]), ":")
        if not own:
            yield (f"{head}range(", first, ", ", last, f"{step}):")
