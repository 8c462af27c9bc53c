"""Decides whether a text belongs to a rule set, independently of any engine.

The rules are finite and not recursive: a table of the possible ends of each rule, from each position, decides exactly,
with no tokens and no lexer. llguidance's and xgrammar's matchers must agree with it; tests check that.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from operator import eq

from kernelsearch.propose.grammar.rules import Alternative, GrammarPart, Ref, Rules


@dataclass(frozen=True)
class Mismatch:
    """The place at which a text leaves the grammar: the offset of the first character that cannot stand there.

    expected are the texts that could stand at begin: at the offset, or at the start of the word around it.
    """

    offset: int
    expected: tuple[str, ...]
    begin: int

    def sentence(self, text: str) -> str:
        """The mismatch as a sentence with line and column."""
        at = self.begin
        line = text.count("\n", 0, at) + 1
        column = at - (text.rfind("\n", 0, at) + 1) + 1
        got = repr(text[at : at + 12]) if at < len(text) else "the end"
        wanted = ", ".join(repr(e) for e in self.expected[:5]) or "the end"
        return f"line {line}, column {column} of the answer: {got} where the grammar has {wanted}"


def find_mismatch(rules: Rules, start: Ref, text: str) -> Mismatch | None:
    """The place at which text stops being the beginning of a sentence of the grammar; None for a sentence."""
    return _Table(rules, text).mismatch(start)


class _Table:
    def __init__(self, rules: Rules, text: str) -> None:
        self.rules, self.text = rules, text
        self.ends: dict[tuple[Ref, int], frozenset[int]] = {}
        self.far, self.expected = 0, set()

    def mismatch(self, start: Ref) -> Mismatch | None:
        ends = self._rule(start, 0)
        if len(self.text) in ends:
            return None
        if ends and max(ends) >= self.far:
            return Mismatch(max(ends), (), max(ends))
        begin = max((at for at, _ in self.expected), default=self.far)
        expected = {part[max(0, begin - at) :][:24] for at, part in self.expected}
        return Mismatch(self.far, tuple(sorted(expected)), begin)

    def _rule(self, ref: Ref, at: int) -> frozenset[int]:
        key = ref, at
        if key not in self.ends:
            ends = (self._sequence(alternative, at) for alternative in self.rules.rules[ref].alternatives)
            self.ends[key] = frozenset().union(*ends)
        return self.ends[key]

    def _sequence(self, parts: Alternative, at: int) -> set[int]:
        places = {at}
        for part in parts:
            places = {end for place in places for end in self._part(part, place)}
            if not places:
                break
        return places

    def _part(self, part: GrammarPart, at: int) -> frozenset[int] | tuple[int, ...]:
        if isinstance(part, int):
            return self._rule(part, at)
        if self.text.startswith(part, at):
            return (at + len(part),)
        reach = at + sum(takewhile(bool, map(eq, part, self.text[at : at + len(part)])))
        if reach > self.far:
            self.far, self.expected = reach, set()
        if reach == self.far:
            self.expected.add((at, part))
        return ()
