"""Does a text belong to a rule set? Our own answer, independent of what an engine says that it did.

The rules are finite and not recursive, so a table of where each rule can end, from each position, decides it exactly,
with no tokens and no lexer. llguidance's and xgrammar's matchers must agree with it; the tests hold them to that.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelsearch.propose.grammar.rules import Alternative, Part, Ref, Rules


@dataclass(frozen=True)
class Mismatch:
    """Where a text leaves the grammar: the offset of the first character that cannot stand there.

    expected is what could stand at begin: at the offset, or where the word begins that the offset is in.
    """

    offset: int
    expected: tuple[str, ...]
    begin: int = -1

    def sentence(self, text: str) -> str:
        at = self.offset if self.begin < 0 else self.begin
        line = text.count("\n", 0, at) + 1
        column = at - (text.rfind("\n", 0, at) + 1) + 1
        got = repr(text[at : at + 12]) if at < len(text) else "the end"
        wanted = ", ".join(repr(e) for e in self.expected[:5]) or "the end"
        return f"line {line}, column {column} of the answer: {got} where the grammar has {wanted}"


def mismatch(rules: Rules, start: Ref, text: str) -> Mismatch | None:
    """None when text is a sentence of the grammar, else where it stops being the beginning of one."""
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
            return Mismatch(max(ends), ())
        begin = max((at for at, _ in self.expected), default=self.far)
        expected = {part[max(0, begin - at) :][:24] for at, part in self.expected}
        return Mismatch(self.far, tuple(sorted(expected)), begin)

    def _rule(self, ref: Ref, at: int) -> frozenset[int]:
        key = ref, at
        if key not in self.ends:
            found: set[int] = set()
            for alternative in self.rules.rules[ref].alternatives:
                found |= self._sequence(alternative, at)
            self.ends[key] = frozenset(found)
        return self.ends[key]

    def _sequence(self, parts: Alternative, at: int) -> set[int]:
        places = {at}
        for part in parts:
            places = {end for place in places for end in self._part(part, place)}
            if not places:
                break
        return places

    def _part(self, part: Part, at: int) -> frozenset[int] | tuple[int, ...]:
        if isinstance(part, int):
            return self._rule(part, at)
        if self.text.startswith(part, at):
            return (at + len(part),)
        same = next((i for i, (a, b) in enumerate(zip(part, self.text[at:], strict=False)) if a != b), None)
        reach = at + (min(len(part), len(self.text) - at) if same is None else same)
        if reach > self.far:
            self.far, self.expected = reach, set()
        if reach == self.far:
            self.expected.add((at, part))
        return ()
