"""Rules for whole statements at a place: what may stand where the parent's statement stands, and what before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kernelsearch.propose.analysis import tree
from kernelsearch.propose.grammar.expressions import STORE_HINTS, Expressions, Store
from kernelsearch.propose.grammar.infer import Place, Reader, Scope
from kernelsearch.propose.grammar.kinds import BOOL, FLOAT, INT, Kind
from kernelsearch.propose.grammar.rules import Draft, Ref, Rules
from kernelsearch.propose.grammar.skeleton import skeleton
from kernelsearch.propose.grammar.universe import Universe

LOOP_OPTIONS = tuple(
    f"{stages}{unroll})"
    for stages in ("", ", num_stages=1", ", num_stages=2", ", num_stages=3", ", num_stages=4")
    for unroll in ("", ", loop_unroll_factor=2", ", loop_unroll_factor=4")
)
ATOMIC = ("atomic_add", "atomic_max", "atomic_min")


@dataclass(frozen=True)
class Fresh:
    """A name that the parent does not use, with the kind that an answer may give it."""

    name: str
    kind: Kind


class Statements:
    """The statement rules of one place under its scope and the fresh names that are bound there."""

    def __init__(
        self, rules: Rules, place: Place, universe: Universe, store: Store, fresh: tuple[Fresh, ...] = ()
    ) -> None:
        added = {f.name: f.kind for f in fresh}
        self.rules, self.place, self.universe = rules, place, universe
        self.scope: Scope = {**place.scope, **added}
        self.expressions = Expressions(rules, self.scope, universe, store)
        self.indent = " " * place.indent
        self.memo: dict[object, Ref | None] = {}

    # ------------------------------------------------------------ in the place of the parent's statement

    def instead(self, level: int) -> Ref | None:
        """Lines that may replace the parent's statement."""
        if level not in self.memo:
            self.memo[level] = self.rules.add((self.indent, *draft, "\n") for draft in self._instead(level))
        return self.memo[level]

    def _instead(self, level: int) -> Iterator[Draft]:
        node = self.place.node
        pair = tree.assignment(node)
        if pair is not None:
            yield from self._assignment(pair[0], level)
            head = self._head(node)
            yield (head, skeleton(self.expressions, self.place, level))
        elif isinstance(node, ast.Expr) and tree.is_tl(node.value, "store"):
            yield from self._store(node.value, level)
        elif isinstance(node, ast.Expr) and tree.is_tl(node.value, *ATOMIC):
            yield (skeleton(self._writer(), self.place, level),)
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and tree.range_of(node):
            yield from self._loop(node, level)
        elif isinstance(node, ast.If):
            kind = Reader(self.scope).kind(node.test)
            yield (f"if {tree.text_of(node.test)}:",)
            if kind is not None and kind.is_bool and not kind.const:
                yield ("if ", self.expressions.value(Kind(BOOL), 1), ":")
        elif isinstance(node, ast.Return) and node.value is not None:
            yield ("return ", skeleton(self.expressions, self.place, level))

    def _head(self, node: ast.stmt) -> str:
        if isinstance(node, ast.AugAssign):
            text = tree.text_of(ast.AugAssign(node.target, node.op, ast.Constant(0)))
            return text[: -len("0")]
        return f"{tree.assignment(node)[0]} = "  # type: ignore[index]

    def _assignment(self, name: str, level: int) -> Iterator[Draft]:
        kind = self.place.after.get(name)
        if kind is None:
            return
        if kind.const:
            if kind.dtype == FLOAT:
                yield (f"{name} = ", self.expressions.floats())
            return
        yield (f"{name} = ", self.expressions.value(kind, level))
        yield from self._updates(name, kind, level)

    def _updates(self, name: str, kind: Kind, level: int) -> Iterator[Draft]:
        """`name op= ...` where the name has this very kind before."""
        if self.scope.get(name) != kind:
            return
        if kind.dtype == FLOAT and not kind.pointer:
            operator = self.rules.one_of((" += ", " -= ", " *= ", " /= "))
            yield (name, operator, self.expressions.value(kind, level - 1))
            yield (name, operator, self.expressions.floats())
        elif kind.dtype == INT or kind.pointer:
            yield (f"{name} += ", self.expressions.value(Kind(INT), level - 1))

    def _writer(self) -> Expressions:
        return Expressions(self.rules, self.scope, self.universe, self.expressions.store, self.universe.stored)

    def _store(self, call: ast.Call, level: int) -> Iterator[Draft]:
        writer = self._writer()
        yield (skeleton(writer, self.place, level),)
        address = tree.argument(call, 0, "pointer")
        kind = Reader(self.scope).kind(address) if address is not None else None
        if kind is None or not kind.pointer:
            return
        value = self.rules.add(
            [
                (self.expressions.value(Kind(FLOAT, kind.shape), level - 1),),
                *([(self.expressions.value(replace(kind, pointer=False), level - 1),)] if kind.dtype != FLOAT else []),
            ]
        )
        if not Kind(kind.dtype).is_float:
            value = self.expressions.value(replace(kind, pointer=False), level - 1)
        hints = self.rules.one_of(STORE_HINTS)
        mask = self.expressions.value(Kind(BOOL, kind.shape), 1)
        ends: list[Draft] = [(", mask=", mask, hints)]
        if kind.scalar or not self.universe.masked:
            ends.append((hints,))
        yield ("tl.store(", writer.value(kind, level - 1), ", ", value, self.rules.add(ends))

    def _loop(self, node: ast.For, level: int) -> Iterator[Draft]:
        """The same loop with other bounds or hints; its step stays, since it is the extent of a block."""
        bounds, iterator = tree.range_of(node), tree.text_of(node.iter)
        head = f"for {tree.text_of(node.target)} in "
        yield (f"{head}{iterator}:",)
        kinds = [Reader(self.scope).kind(e) for e in bounds or ()]
        if tree.called(node.iter) == "tl.static_range" or any(k is None or k.dtype != INT for k in kinds):
            return
        assert bounds is not None
        first, last = (
            self.rules.add([(tree.text_of(e),), (self.expressions.value(Kind(INT), level),)]) for e in bounds[:2]
        )
        step = f", {tree.text_of(bounds[2])}"
        assert isinstance(node.iter, ast.Call)
        own = [f", {k.arg}={tree.text_of(k.value)}" for k in node.iter.keywords if k.arg != "step"]
        yield (f"{head}tl.range(", first, ", ", last, step, self.rules.one_of([*LOOP_OPTIONS, "".join(own) + ")"]), ":")
        if not own:
            yield (f"{head}range(", first, ", ", last, f"{step}):")

    # ------------------------------------------------------------ beside it

    def fresh(self, fresh: Fresh, level: int) -> Ref | None:
        """The line that binds a fresh name."""
        if fresh not in self.memo:
            line = (self.indent, f"{fresh.name} = ", self.expressions.value(fresh.kind, level), "\n")
            self.memo[fresh] = self.rules.add([line])
        return self.memo[fresh]

    def again(self, level: int) -> Ref | None:
        """Lines that assign a name of the parent once more, with the kind that it has here."""
        if ("again", level) not in self.memo:
            self.memo["again", level] = self.rules.add(self._again(level))
        return self.memo["again", level]

    def _again(self, level: int) -> list[Draft]:
        drafts: list[Draft] = []
        for name, kind in self.place.scope.items():
            if name in self.universe.parameters or kind.const or kind.pointer:
                continue
            if kind.dtype == FLOAT or kind.is_bool:
                drafts.append((self.indent, f"{name} = ", self.expressions.value(kind, level), "\n"))
                drafts += [(self.indent, *d, "\n") for d in self._updates(name, kind, level)]
        return drafts

    @property
    def may_go(self) -> bool:
        """Whether the kernel still binds all its names, with the same kinds, when the statement is deleted."""
        pair = tree.assignment(self.place.node)
        if pair is not None:
            kind = self.place.scope.get(pair[0])
            return kind is not None and kind == self.place.after.get(pair[0])
        return tree.called(getattr(self.place.node, "value", self.place.node)) in (
            "tl.assume",
            "tl.multiple_of",
            "tl.max_contiguous",
            "tl.debug_barrier",
            "tl.static_assert",
        )
