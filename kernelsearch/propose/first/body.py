"""A typed body for a launch skeleton: a few assignments of float32 tiles and of numbers a row, the last one `out`.

No parent is there to read a grammar from, so that this one is made from the skeleton: its tiles and numbers, what can
be done to each, reductions that cannot read beyond the row. What is bound is known wherever a name may stand:

    BODY
        s0 = tl.max(tl.where(mask, x, float("-inf")), axis=0)
        t0 = tl.exp((x - s0))
        s1 = tl.sum(tl.where(mask, t0, 0.0), axis=0)
        out = (t0 / s1)
    END
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelsearch.propose.first.template import Template
from kernelsearch.propose.grammar.language import Language
from kernelsearch.propose.grammar.rules import Ref, Rules

BUDGET = 1024
"""Bytes of the longest answer, and so the most tokens that one can have."""
FUNCTIONS = ("exp", "log", "sqrt", "rsqrt", "abs", "sigmoid", "erf", "sin", "cos", "floor")
USUAL = (0.0, 1.0, 2.0, 0.5)
COMPARED = (">", "<", ">=", "<=")
SIZES = ((6, 2), (5, 2), (4, 2), (6, 1), (4, 1), (3, 1))
"""(Statements before `out`, depth of an expression), the largest that fits the budget is taken."""


@dataclass(frozen=True)
class Refused:
    """Why an answer is no body: `stopped` or `grammar`, and a sentence."""

    stage: str
    reason: str


@dataclass(frozen=True)
class Body(Language):
    """All allowed bodies of one skeleton; a grammar for engines."""

    template: Template
    rules: Rules
    start: Ref
    statements: int

    @classmethod
    def of(cls, template: Template, budget: int = BUDGET) -> Body:
        """The largest grammar whose longest answer has at most budget bytes."""
        for statements, depth in SIZES:
            made = _Builder(template, statements, depth).body()
            if made.longest <= budget:
                break
        return made

    def read(self, text: str, stopped: bool = True) -> str | Refused:
        """The body's lines out of an answer, checked here whatever its engine promised."""
        if not stopped:
            return Refused("stopped", f"the answer was cut short after {len(text)} characters")
        text = text.strip()
        if len(text) > self.longest:
            return Refused("grammar", f"an answer of {len(text):,} characters, where {self.longest:,} are the most")
        where = self.mismatch(text)
        if where is not None:
            return Refused("grammar", where.sentence(text))
        return "\n".join(text.split("\n")[1:-1]) + "\n"


class _Builder:
    """Rules by how many tiles `t` and numbers `s` are bound, so that no name can be read before it is bound."""

    def __init__(self, template: Template, statements: int, depth: int) -> None:
        self.template, self.statements, self.depth = template, statements, depth
        self.rules = Rules()
        roles = template.roles
        self.tiles = [n for n, r in roles.items() if r in ("tile", "column")]
        self.values = [n for n, r in roles.items() if r in ("row", "one", "number")]
        literals = dict.fromkeys([*USUAL, *(c for c in template.constants if c >= 0)])
        self.literals = [repr(float(c)) for c in literals][:12]
        self.known: dict[tuple, Ref] = {}

    def body(self) -> Body:
        start = self.rules.add([("BODY\n", self._from(0, 0), "END")])
        return Body(self.template, self.rules, start, self.statements)

    def _from(self, tiles: int, numbers: int) -> Ref:
        key = ("from", tiles, numbers)
        if key not in self.known:
            value = self._number if self.template.reduces else self._tile
            drafts = [("    out = ", value(tiles, numbers, self.depth), "\n")]
            if tiles + numbers < self.statements:
                tile, number = (f(tiles, numbers, self.depth) for f in (self._tile, self._number))
                drafts.append((f"    t{tiles} = ", tile, "\n", self._from(tiles + 1, numbers)))
                if number is not None:
                    drafts.append((f"    s{numbers} = ", number, "\n", self._from(tiles, numbers + 1)))
            self.known[key] = self.rules.add(drafts)
        return self.known[key]

    def _tile(self, tiles: int, numbers: int, depth: int) -> Ref:
        """A float32 tile of the row."""
        key = ("tile", tiles, numbers, depth)
        if key not in self.known:
            names = self.rules.one_of([*self.tiles, *(f"t{i}" for i in range(tiles))])
            if not depth:
                return names
            inner, plain = self._tile(tiles, numbers, depth - 1), self._plain(tiles, numbers)
            operators, compared = (
                self.rules.one_of([" + ", " - ", " * ", " / "]),
                self.rules.one_of(f" {c} " for c in COMPARED),
            )
            chosen = self.rules.add([(names,), (plain,)])
            self.known[key] = self.rules.add(
                [
                    (names,),
                    ("(", inner, operators, inner, ")"),
                    ("(", inner, operators, plain, ")"),
                    ("(", plain, operators, inner, ")"),
                    ("tl.", self._functions(), "(", inner, ")"),
                    ("tl.where(", names, compared, chosen, ", ", names, ", ", chosen, ")"),
                    ("tl.", self.rules.one_of(["maximum", "minimum"]), "(", names, ", ", chosen, ")"),
                ]
            )
        return self.known[key]

    def _number(self, tiles: int, numbers: int, depth: int) -> Ref | None:
        """A number of the row that a program computes or loads; None where there is none (a flat array)."""
        key = ("number", tiles, numbers, depth)
        if key not in self.known:
            names = self.rules.one_of([*self.values, *(f"s{i}" for i in range(numbers))])
            if not depth:
                return names
            inner, plain = self._number(tiles, numbers, depth - 1), self._plain(tiles, numbers)
            tile, operators = self._tile(tiles, numbers, depth - 1), self.rules.one_of([" + ", " - ", " * ", " / "])
            drafts = [
                (names,),
                ("(", inner, operators, plain, ")"),
                ("(", plain, operators, inner, ")"),
                ("tl.", self._functions(), "(", inner, ")"),
            ]
            if self.template.kind == "rows":
                reduced = self.rules.add(
                    [
                        ("tl.sum(tl.where(mask, ", tile, ", 0.0), axis=0)"),
                        ("tl.max(tl.where(mask, ", tile, ', float("-inf")), axis=0)'),
                        ("tl.min(tl.where(mask, ", tile, ', float("inf")), axis=0)'),
                    ]
                )
                drafts += [(reduced,), ("(", reduced, operators, plain, ")")]
            self.known[key] = self.rules.add(drafts)
        return self.known[key]

    def _plain(self, tiles: int, numbers: int) -> Ref:
        """What needs no operation: numbers that are bound, the row's length, literals."""
        size = ["n_cols"] if self.template.kind == "rows" else []
        return self.rules.one_of([*self.values, *(f"s{i}" for i in range(numbers)), *size, *self.literals])

    def _functions(self) -> Ref:
        return self.rules.one_of(FUNCTIONS)
