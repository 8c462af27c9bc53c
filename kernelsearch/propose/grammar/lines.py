"""Rules for the line edits of a whole answer: places in ascending order, fresh names where they are bound, a budget.

What may follow depends on three things: the place, the bytes that are left, and the fresh names that are in scope. A
rule stands for each triple that can be reached; the bytes are counted in steps, rounded to the safe side, so that the
longest answer is never longer than the budget, whatever is chosen on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kernelsearch.propose.grammar.expressions import Store
from kernelsearch.propose.grammar.infer import Place
from kernelsearch.propose.grammar.kinds import BOOL, FLOAT, INT, Kind
from kernelsearch.propose.grammar.page import Page
from kernelsearch.propose.grammar.rules import Draft, Ref, Rules
from kernelsearch.propose.grammar.statements import Fresh, Statements
from kernelsearch.propose.grammar.universe import Universe
from kernelsearch.types import TaskFacts

STEP = 64
"""Bytes that the budget is counted in."""

EXTRA = 2
"""Lines that an edit may put before the one that it replaces."""

MAX_FRESH = 2
"""Fresh names that may be in scope at once."""

Bound = tuple[tuple[Fresh, tuple[int, ...]], ...]
"""Fresh names with the block that binds each."""


class Lines:
    """The line-edit rules of one parent; `end` is the rule of what closes an answer."""

    def __init__(self, rules: Rules, page: Page, task: TaskFacts, end: Ref, budget: int) -> None:
        self.rules, self.page, self.end = rules, page, end
        self.universes = {
            name: Universe.of(function, node, [p for p in page.places if p.function == name], task)
            for name, (function, node) in page.functions.items()
        }
        self.pool = {name: fresh_names(page, name) for name in page.functions}
        self.budget = budget - rules.rules[end].longest
        self.store: Store = {}
        self.memo: dict[tuple, Ref | None] = {}
        self.statements: dict[tuple[int, tuple[Fresh, ...]], Statements] = {}

    def start(self) -> Ref | None:
        """Answers with one line edit at least."""
        return self._rest(0, self._stepped(self.budget), (), first=True)

    # ------------------------------------------------------------ the chain of places

    @staticmethod
    def _stepped(left: int) -> int:
        return left // STEP * STEP

    def _rest(self, at: int, left: int, bound: Bound, first: bool = False) -> Ref | None:
        """From this place on, with so many bytes left."""
        if at == len(self.page.places):
            return None if first else self.end
        place = self.page.places[at]
        bound = tuple((f, block) for f, block in bound if place.block[: len(block)] == block)
        key = at, left, bound, first
        if key not in self.memo:
            self.memo[key] = self.rules.add([*self._edits(at, left, bound), (self._rest(at + 1, left, bound, first),)])
        return self.memo[key]

    def _edits(self, at: int, left: int, bound: Bound) -> Iterator[Draft]:
        place = self.page.places[at]
        n = place.line
        for word, body in (("LINE", self._body), ("BEFORE", self._before)):
            head = f"{word} {n}\n"
            yield (head, body(at, left - len(head), bound, EXTRA))
        statements = self._statements(at, bound)
        if statements.may_go:
            yield (f"DELETE {n}\n", self._after(at, left - len(f"DELETE {n}\n"), bound))

    def _after(self, at: int, left: int, bound: Bound) -> Ref | None:
        return None if left < 0 else self._rest(at + 1, self._stepped(left), bound)

    # ------------------------------------------------------------ the lines of one edit

    def _body(self, at: int, left: int, bound: Bound, extra: int) -> Ref | None:
        """Lines for LINE: up to `extra` others, then the one that replaces the parent's statement."""
        return self._lines("instead", at, left, bound, extra)

    def _before(self, at: int, left: int, bound: Bound, extra: int) -> Ref | None:
        """Lines for BEFORE: one to `extra`."""
        return self._lines("before", at, left, bound, extra)

    def _lines(self, form: str, at: int, left: int, bound: Bound, extra: int) -> Ref | None:
        if left <= 0:
            return None
        key = form, at, self._stepped(left), bound, extra
        if key not in self.memo:
            self.memo[key] = self.rules.add(self._drafts(form, at, self._stepped(left), bound, extra))
        return self.memo[key]

    def _drafts(self, form: str, at: int, left: int, bound: Bound, extra: int) -> Iterator[Draft]:
        place, statements = self.page.places[at], self._statements(at, bound)
        if form == "instead":
            for level in (1, 2):
                yield self._then(statements.instead(level), left, lambda rest: self._after(at, rest, bound))
        if not extra:
            return
        for line, after in self._extras(place, statements, bound):
            def following(rest: int, after: Bound = after) -> Ref | None:
                more = self._lines(form, at, rest, after, extra - 1)
                done = self._after(at, rest, after) if form == "before" else None
                return self.rules.add([(more,), (done,)])

            yield self._then(line, left, following)

    def _extras(self, place: Place, statements: Statements, bound: Bound) -> Iterator[tuple[Ref | None, Bound]]:
        taken = {f.name for f, _ in bound}
        if len(bound) < MAX_FRESH:
            for fresh in self.pool[place.function]:
                if fresh.name not in taken:
                    yield statements.fresh(fresh, 1), tuple(sorted((*bound, (fresh, place.block)), key=lambda b: b[0].name))
        yield statements.again(1), bound

    def _then(self, line: Ref | None, left: int, following) -> Draft:  # noqa: ANN001
        """The line and what follows it, when the bytes suffice; an empty draft with None otherwise."""
        if line is None or self.rules.rules[line].longest > left:
            return (None,)
        return (line, following(left - self.rules.rules[line].longest))

    # ------------------------------------------------------------ what a place offers

    def _statements(self, at: int, bound: Bound) -> Statements:
        fresh = tuple(f for f, _ in bound)
        key = at, fresh
        if key not in self.statements:
            place = self.page.places[at]
            self.statements[key] = Statements(
                self.rules, place, self.universes[place.function], self.store, fresh
            )
        return self.statements[key]



def fresh_names(page: Page, function: str) -> tuple[Fresh, ...]:
    """The fresh names that an answer may bind: a float and a mask of the blocks that the parent has most of, a scalar."""
    places = [p for p in page.places if p.function == function]
    counts = Counter(k for p in places for k in set(p.scope.values()) if not k.const and not k.pointer)
    floats = [k for k, _ in counts.most_common() if k.dtype == FLOAT]
    whole = sorted({k.shape for k in floats if k.shape and "1" not in k.shape}, key=len)
    kinds: list[Kind] = [Kind(FLOAT, whole[-1])] if whole else []
    if len(whole) > 1:
        kinds.append(Kind(FLOAT, whole[0]))
    elif floats:
        kinds.append(Kind(FLOAT))
    masks = [k for k, _ in counts.most_common() if k.is_bool and k.shape]
    integers = [k for k, _ in counts.most_common() if k == Kind(INT, k.shape) and k.shape]
    kinds.append(masks[0] if masks else Kind(BOOL, integers[0].shape) if integers else Kind(INT))
    taken = {n for p in places for n in p.after} | set().union(*(page.functions[f][0].params for f in page.functions))
    names = (f"t{i}" for i in range(1000) if f"t{i}" not in taken)
    return tuple(Fresh(next(names), kind) for kind in dict.fromkeys(kinds))
