"""Rules for the line edits of a whole answer: places in ascending order, fresh names where they are bound, a budget.

What may follow depends on three things: the place, the bytes that are left, and the fresh names that are in scope. A
rule stands for each triple that can be reached; the bytes are counted in steps, rounded to the safe side, so that the
longest answer is never longer than the budget, whatever is chosen on the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kernelsearch.core.types import TaskFacts
from kernelsearch.propose.grammar.expressions import Store
from kernelsearch.propose.grammar.kinds import BOOL, FLOAT, INT, Kind
from kernelsearch.propose.grammar.page import Page
from kernelsearch.propose.grammar.rules import Draft, Ref, Rules
from kernelsearch.propose.grammar.statements import Fresh, Statements
from kernelsearch.propose.grammar.universe import Universe

ROOM = ((16, 3, 2, 10), (30, 2, 2, 8), (60, 2, 1, 6))
"""(places, fresh names to choose from, fresh names in scope at once, steps of the budget) for parents up to that size:
what keeps the grammar of a long kernel within half a second. The longest kernels get no fresh names."""

Bound = tuple[tuple[Fresh, tuple[int, ...]], ...]
"""Fresh names with the block that binds each."""

Edits = dict[tuple[tuple[Fresh, ...], int], list[Draft]]
"""Edits of one place by the fresh names that they bind and the bytes that they may take."""


class Lines:
    """The line-edit rules of one parent; `end` is the rule of what closes an answer."""

    def __init__(self, rules: Rules, page: Page, task: TaskFacts, end: Ref, budget: int) -> None:
        self.rules, self.page, self.end = rules, page, end
        self.universes = {
            name: Universe.of(function, node, [p for p in page.places if p.function == name], task)
            for name, (function, node) in page.functions.items()
        }
        _, most, self.at_once, steps = next((r for r in ROOM if len(page.places) <= r[0]), (0, 0, 0, 6))
        self.pool = {name: fresh_names(page, name)[:most] for name in page.functions}
        self.budget = budget - rules.rules[end].longest
        self.step = max(16, self.budget // steps)
        self.store: Store = {}
        self.statements: dict[tuple[int, tuple[Fresh, ...]], Statements] = {}
        self.edits: dict[tuple[int, tuple[Fresh, ...]], list[tuple[Ref, tuple[Fresh, ...], int]]] = {}
        self.memo: dict[tuple, Ref | None] = {}

    def start(self) -> Ref | None:
        """Answers with one line edit at least."""
        return self._rest(0, self.budget // self.step, (), first=True)

    # ------------------------------------------------------------ the chain of places

    def _rest(self, at: int, left: int, bound: Bound, first: bool = False) -> Ref | None:
        """From this place on, with so many steps left."""
        if at == len(self.page.places) or not left:
            return None if first else self.end
        block = self.page.places[at].block
        bound = tuple((f, b) for f, b in bound if block[: len(b)] == b)
        key = at, left, bound, first
        if key not in self.memo:
            drafts: list[Draft] = [(self._rest(at + 1, left, bound, first),)]
            for edit, added, steps in self._edits(at, tuple(f for f, _ in bound)):
                if steps <= left:
                    after = tuple(sorted((*bound, *((f, block) for f in added)), key=lambda b: b[0].name))
                    drafts.append((edit, self._rest(at + 1, left - steps, after)))
            self.memo[key] = self.rules.add(drafts)
        return self.memo[key]

    def _edits(self, at: int, names: tuple[Fresh, ...]) -> list[tuple[Ref, tuple[Fresh, ...], int]]:
        """The edits of one place under the fresh names in scope: (rule, names that it binds, steps)."""
        key = at, names
        if key not in self.edits:
            found: Edits = {}
            for added, draft in self._drafts(at, names):
                if None not in draft:
                    steps = -(-self.rules.length(draft) // self.step)  # type: ignore[arg-type]
                    found.setdefault((added, steps), []).append(draft)
            made = ((self.rules.add(drafts), added, steps) for (added, steps), drafts in found.items())
            self.edits[key] = [m for m in made if m[0] is not None]  # type: ignore[misc]
        return self.edits[key]

    def _drafts(self, at: int, names: tuple[Fresh, ...]) -> Iterator[tuple[tuple[Fresh, ...], Draft]]:
        n = self.page.places[at].line
        for lines, added in self._extras(at, names):
            final = self._statements(at, (*names, *added))
            for level in (1, 2):
                yield added, (f"LINE {n}\n", *lines, final.instead(level))
            if lines:
                yield added, (f"BEFORE {n}\n", *lines)
        if self._statements(at, names).may_go:
            yield (), (f"DELETE {n}\n",)

    def _extras(self, at: int, names: tuple[Fresh, ...]) -> Iterator[tuple[Draft, tuple[Fresh, ...]]]:
        """Lines that may stand before a statement, with the fresh names that they bind: none, one or two."""
        place = self.page.places[at]
        now = self._statements(at, names)
        yield (), ()
        yield (now.again(1),), ()
        free = [f for f in self.pool[place.function] if f not in names] if len(names) < self.at_once else []
        for i, fresh in enumerate(free):
            then = self._statements(at, (*names, fresh))
            yield (now.fresh(fresh, 1),), (fresh,)
            for other in free[i + 1 :] if len(names) + 1 < self.at_once else ():
                yield (now.fresh(fresh, 1), then.fresh(other, 1)), (fresh, other)

    # ------------------------------------------------------------ what a place offers

    def _statements(self, at: int, fresh: tuple[Fresh, ...]) -> Statements:
        fresh = tuple(sorted(fresh, key=lambda f: f.name))
        key = at, fresh
        if key not in self.statements:
            place = self.page.places[at]
            universe = self.universes[place.function]
            self.statements[key] = Statements(self.rules, place, universe, self.store, fresh)
        return self.statements[key]


def fresh_names(page: Page, function: str) -> tuple[Fresh, ...]:
    """The fresh names that an answer may bind: a float of its largest block and of its smallest, a mask."""
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
