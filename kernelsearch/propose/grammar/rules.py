"""A rule set that no engine owns: alternatives of literals and references, built from the leaves up, never recursive.

Because a rule may only refer to rules that are there already, the language is finite, and the length of its longest
sentence is known while it is built. Equal bodies become one rule, which is what keeps a grammar with one copy of its
expressions for every line small.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Ref = int
"""A rule, by its number."""

GrammarPart = str | Ref
Alternative = tuple[GrammarPart, ...]
Draft = tuple[GrammarPart | None, ...]
"""An alternative in the making; one that holds None is left out."""


@dataclass(frozen=True)
class Rule:
    """The alternatives of one rule, and the bytes of the longest text that it gives."""

    alternatives: tuple[Alternative, ...]
    longest: int


class Rules:
    """A growing set of rules."""

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self._known: dict[tuple[Alternative, ...], Ref] = {}

    def add(self, drafts: Iterable[Draft]) -> Ref | None:
        """The rule with these alternatives; None when none is left."""
        body = tuple(dict.fromkeys(_join_literals(draft) for draft in drafts if None not in draft))  # type: ignore[arg-type]
        if not body:
            return None
        if body not in self._known:
            self._known[body] = len(self.rules)
            self.rules.append(Rule(body, max(self.length(a) for a in body)))
        return self._known[body]

    def one_of(self, texts: Iterable[str]) -> Ref | None:
        """The rule of some literals."""
        return self.add((text,) for text in texts)

    def length(self, parts: Iterable[GrammarPart]) -> int:
        """Bytes of the longest text of a sequence of parts."""
        return sum(len(p.encode()) if isinstance(p, str) else self.rules[p].longest for p in parts)

    def reachable_from(self, start: Ref) -> list[Ref]:
        """The rules that start refers to, itself first."""
        seen, stack = {start}, [start]
        while stack:
            for alternative in self.rules[stack.pop()].alternatives:
                for part in alternative:
                    if isinstance(part, int) and part not in seen:
                        seen.add(part)
                        stack.append(part)
        return [start, *sorted(seen - {start}, reverse=True)]

    def sample(self, start: Ref, rng: random.Random) -> str:
        """Draws a sentence; the alternatives of a rule are equally likely."""
        return "".join(self._draw(start, rng))

    def _draw(self, start: Ref, rng: random.Random) -> Iterator[str]:
        for part in rng.choice(self.rules[start].alternatives):
            if isinstance(part, str):
                yield part
            else:
                yield from self._draw(part, rng)


def _join_literals(draft: tuple[GrammarPart, ...]) -> Alternative:
    """The parts with neighbouring literals made one."""
    out: list[GrammarPart] = []
    for part in draft:
        if isinstance(part, str) and out and isinstance(out[-1], str):
            out[-1] += part
        elif part != "":
            out.append(part)
    return tuple(out)
