"""A grammar of bodies for a launch skeleton: a few assignments of float32 tiles and of numbers a row, the last `out`.

There is no parent to make a grammar from, so this one comes from the skeleton: its tiles and numbers, their operations,
reductions that cannot read beyond the row. Rules know the bound names wherever a name may stand:

    BODY
        s0 = tl.max(tl.where(mask, x, float("-inf")), axis=0)
        t0 = tl.exp((x - s0))
        s1 = tl.sum(tl.where(mask, t0, 0.0), axis=0)
        out = (t0 / s1)
    END
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from kernelsearch.propose.first.template import Template
from kernelsearch.propose.grammar.answer import AnswerRejection
from kernelsearch.propose.grammar.language import Language
from kernelsearch.propose.grammar.rules import Ref, Rules
from kernelsearch.propose.grammar.unwrapped import find_blocks, strip_thinking

BUDGET = 1024
"""Bytes of the longest answer, and so the most tokens that one can have."""
FUNCTIONS = ("exp", "log", "sqrt", "rsqrt", "abs", "sigmoid", "erf", "sin", "cos", "floor")
USUAL = (0.0, 1.0, 2.0, 0.5)
COMPARED = (">", "<", ">=", "<=")
SIZES = ((6, 2), (5, 2), (4, 2), (6, 1), (4, 1), (3, 1))
"""(Statements before `out`, depth of an expression), the largest that fits the budget is taken."""


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

    def read(self, text: str, stopped: bool = True) -> str | AnswerRejection:
        """The body's lines of an answer, checked here whatever its engine promised."""
        said = strip_thinking(text)
        forms = (form.strip() for form in (said, *find_blocks(said)[::-1]) if len(form) <= 2 * self.longest)
        text = next((form for form in forms if self.mismatch(form) is None), text.strip())
        if stopped and len(text) > self.longest:
            reason = f"an answer of {len(text):,} characters, where {self.longest:,} are the most"
            return AnswerRejection(text, "grammar", reason)
        return self.refuse(text, stopped) or "\n".join(text.split("\n")[1:-1]) + "\n"


class _Builder:
    """Rules for each count of bound tiles `t` and numbers `s`: no name can be read before it is bound."""

    def __init__(self, template: Template, statements: int, depth: int) -> None:
        self.template, self.statements, self.depth = template, statements, depth
        self.rules = Rules()
        self.operators = self.rules.one_of([" + ", " - ", " * ", " / "])
        self.functions = self.rules.one_of(FUNCTIONS)
        roles = template.roles
        self.tiles = [n for n, r in roles.items() if r in ("tile", "column")]
        self.values = [n for n, r in roles.items() if r in ("row", "one", "number")]
        literals = dict.fromkeys([*USUAL, *(c for c in template.constants if c >= 0)])
        self.literals = [repr(float(c)) for c in literals][:12]
        self._rest, self._tile, self._number = (cache(f) for f in (self._make_rest, self._make_tile, self._make_number))

    def body(self) -> Body:
        start = self.rules.add([("BODY\n", self._rest(0, 0), "END")])
        return Body(self.template, self.rules, start, self.statements)

    def _make_rest(self, tiles: int, numbers: int) -> Ref:
        """The lines that may follow so many bound tiles and numbers."""
        value = self._number if self.template.reduces else self._tile
        drafts = [("    out = ", value(tiles, numbers, self.depth), "\n")]
        if tiles + numbers < self.statements:
            tile, number = (f(tiles, numbers, self.depth) for f in (self._tile, self._number))
            drafts.append((f"    t{tiles} = ", tile, "\n", self._rest(tiles + 1, numbers)))
            if number is not None:
                drafts.append((f"    s{numbers} = ", number, "\n", self._rest(tiles, numbers + 1)))
        return self.rules.add(drafts)

    def _make_tile(self, tiles: int, numbers: int, depth: int) -> Ref:
        """A float32 tile of the row."""
        names = self.rules.one_of([*self.tiles, *(f"t{i}" for i in range(tiles))])
        if not depth:
            return names
        inner, plain = self._tile(tiles, numbers, depth - 1), self._plain(tiles, numbers)
        operators, compared = self.operators, self.rules.one_of(f" {c} " for c in COMPARED)
        chosen = self.rules.add([(names,), (plain,)])
        return self.rules.add(
            [
                (names,),
                ("(", inner, operators, inner, ")"),
                ("(", inner, operators, plain, ")"),
                ("(", plain, operators, inner, ")"),
                ("tl.", self.functions, "(", inner, ")"),
                ("tl.where(", names, compared, chosen, ", ", names, ", ", chosen, ")"),
                ("tl.", self.rules.one_of(["maximum", "minimum"]), "(", names, ", ", chosen, ")"),
            ]
        )

    def _make_number(self, tiles: int, numbers: int, depth: int) -> Ref | None:
        """A number of the row that a program computes or loads; None where there is none (a flat array)."""
        names = self.rules.one_of([*self.values, *(f"s{i}" for i in range(numbers))])
        if not depth:
            return names
        inner, plain = self._number(tiles, numbers, depth - 1), self._plain(tiles, numbers)
        tile, operators = self._tile(tiles, numbers, depth - 1), self.operators
        drafts = [
            (names,),
            ("(", inner, operators, plain, ")"),
            ("(", plain, operators, inner, ")"),
            ("tl.", self.functions, "(", inner, ")"),
        ]
        if self.template.kind == "rows":
            neutral = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}
            reduced = self.rules.add(
                (f"tl.{name}(tl.where(mask, ", tile, f", {zero}), axis=0)") for name, zero in neutral.items()
            )
            drafts += [(reduced,), ("(", reduced, operators, plain, ")")]
        return self.rules.add(drafts)

    def _plain(self, tiles: int, numbers: int) -> Ref:
        """Numbers without an operation: bound ones, the row's length, literals."""
        size = ["n_cols"] if self.template.kind == "rows" else []
        return self.rules.one_of([*self.values, *(f"s{i}" for i in range(numbers)), *size, *self.literals])
