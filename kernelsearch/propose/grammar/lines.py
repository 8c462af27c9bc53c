"""Rules for the line edits of a whole answer: places in ascending order, fresh names where they are bound, a budget.

What may follow depends on three things: the place, the bytes that are left, and the fresh names that are in scope. A
rule stands for each triple that can be reached; the bytes are counted in steps, rounded to the safe side, so that the
longest answer is never longer than the budget, whatever is chosen on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache

from kernelsearch.propose.analysis.kinds import BOOL, FLOAT, INT, ValueKind
from kernelsearch.propose.grammar.rules import Draft, Ref, Rules
from kernelsearch.propose.grammar.source_page import SourcePage
from kernelsearch.propose.grammar.statements import Fresh, Statements
from kernelsearch.propose.grammar.universe import Universe

ROOM = ((16, 3, 2, 10), (30, 2, 2, 8), (60, 2, 1, 6))
"""(places, fresh names to choose from, fresh names in scope at once, steps of the budget) for parents up to that size:
what keeps the grammar of a long kernel within half a second. The longest kernels get no fresh names."""

Bound = tuple[tuple[Fresh, tuple[int, ...]], ...]
"""Fresh names with the block that binds each."""


class Lines:
    """The line-edit rules of one parent; `end` is the rule of what closes an answer."""

    def __init__(self, rules: Rules, page: SourcePage, end: Ref, budget: int) -> None:
        self.rules, self.page, self.end = rules, page, end
        kinds = {p.function: p.kinds for p in page.places}
        self.universes = {n: Universe.of(f, node, kinds.get(n, {})) for n, (f, node) in page.functions.items()}
        _, most, self.at_once, steps = next((r for r in ROOM if len(page.places) <= r[0]), (0, 0, 0, 6))
        self.pool = {name: fresh_names(page, name)[:most] for name in page.functions}
        self.budget = budget - rules.rules[end].longest
        self.step = max(16, self.budget // steps)
        self._statements, self._edits, self._rest = (
            cache(f) for f in (self._make_statements, self._make_edits, self._make_rest)
        )

    def start(self) -> Ref | None:
        """Answers with one line edit at least."""
        return self._rest(0, self.budget // self.step, (), True)

    def _make_rest(self, at: int, left: int, bound: Bound, first: bool) -> Ref | None:
        """Answers from a place on, with so many steps left; first: nothing was edited before it."""
        if at == len(self.page.places) or not left:
            return None if first else self.end
        block = self.page.places[at].block
        bound = tuple((f, b) for f, b in bound if block[: len(b)] == b)
        drafts: list[Draft] = [(self._rest(at + 1, left, bound, first),)]
        for edit, added, steps in self._edits(at, tuple(f for f, _ in bound)):
            if steps <= left:
                after = tuple(sorted((*bound, *((f, block) for f in added)), key=lambda b: b[0].name))
                drafts.append((edit, self._rest(at + 1, left - steps, after, False)))
        return self.rules.add(drafts)

    def _make_edits(self, at: int, names: tuple[Fresh, ...]) -> list[tuple[Ref, tuple[Fresh, ...], int]]:
        """The edits of one place under the fresh names in scope: (rule, names that it binds, steps)."""
        groups: dict[tuple[tuple[Fresh, ...], int], list[Draft]] = {}
        for added, draft in self._drafts(at, names):
            if None not in draft:
                steps = -(-self.rules.length(draft) // self.step)  # type: ignore[arg-type]
                groups.setdefault((added, steps), []).append(draft)
        return [(self.rules.add(drafts), added, steps) for (added, steps), drafts in groups.items()]  # type: ignore[misc]

    def _drafts(self, at: int, names: tuple[Fresh, ...]) -> Iterator[tuple[tuple[Fresh, ...], Draft]]:
        """Edits of one place, each with the fresh names that it binds."""
        n = self.page.places[at].line
        for lines, added in self._lines_before(at, names):
            final = self._statements(at, (*names, *added))
            for level in (1, 2):
                yield added, (f"LINE {n}\n", *lines, final.instead(level))
            if lines:
                yield added, (f"BEFORE {n}\n", *lines)
        if self._statements(at, names).may_go:
            yield (), (f"DELETE {n}\n",)

    def _lines_before(self, at: int, names: tuple[Fresh, ...]) -> Iterator[tuple[Draft, tuple[Fresh, ...]]]:
        """Lines that may stand before a statement, with the fresh names that they bind: none, one or two."""
        yield (), ()
        room = self.at_once - len(names)
        free = [f for f in self.pool[self.page.places[at].function] if f not in names] if room > 0 else []
        for i, fresh in enumerate(free):
            line = self._statements(at, names).fresh(fresh, 1)
            yield (line,), (fresh,)
            for other in free[i + 1 :] if room > 1 else ():
                yield (line, self._statements(at, (*names, fresh)).fresh(other, 1)), (fresh, other)

    def _make_statements(self, at: int, fresh: tuple[Fresh, ...]) -> Statements:
        place = self.page.places[at]
        return Statements(self.rules, place, self.universes[place.function], fresh)


def fresh_names(page: SourcePage, function: str) -> tuple[Fresh, ...]:
    """The fresh names that an answer may bind: a float of its largest block and of its smallest, a mask."""
    places = [p for p in page.places if p.function == function]
    counts = Counter(k for p in places for k in set(p.scope.values()) if not k.const and not k.pointer)
    floats = [k for k, _ in counts.most_common() if k.dtype == FLOAT]
    whole = sorted({k.shape for k in floats if k.shape and "1" not in k.shape}, key=len)
    kinds: list[ValueKind] = [ValueKind(FLOAT, whole[-1])] if whole else []
    if len(whole) > 1:
        kinds.append(ValueKind(FLOAT, whole[0]))
    elif floats:
        kinds.append(ValueKind(FLOAT))
    masks = [k for k, _ in counts.most_common() if k.is_bool and k.shape]
    integers = [k for k, _ in counts.most_common() if k == ValueKind(INT, k.shape) and k.shape]
    kinds.append(masks[0] if masks else ValueKind(BOOL, integers[0].shape) if integers else ValueKind(INT))
    taken = {n for p in places for n in p.after} | set().union(*(page.functions[f][0].params for f in page.functions))
    names = (f"t{i}" for i in range(1000) if f"t{i}" not in taken)
    return tuple(Fresh(next(names), kind) for kind in dict.fromkeys(kinds))
