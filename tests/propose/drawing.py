"""Draws sentences of an EBNF grammar, as an obedient model would: texts, classes, groups, repetitions, rules."""

from __future__ import annotations

import json
import random
import re
from functools import cache

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|[\w-]+|[()|*+?]')
_MEMBER = re.compile(r"(\\u....|\\.|.)(?:-(\\u....|\\.|[^\]]))?", re.DOTALL)
FAR = 10**6


class Language:
    """A grammar's rules as trees: (kind, parts)."""

    def __init__(self, text: str) -> None:
        lines = (line.partition(" ::= ") for line in text.strip().split("\n"))
        self.rules = {name: _Reader(_TOKEN.findall(body)).alternatives() for name, _, body in lines}
        self.least = dict.fromkeys(self.rules, FAR)
        for _ in self.rules:  # the depth of each rule's shallowest sentence
            found = {name: 1 + self._depth(body) for name, body in self.rules.items()}
            if found == self.least:
                break
            self.least = found

    def draw(self, rng: random.Random, depth: int = 40, most: int = 3) -> str:
        """One sentence; below the depth only the shallowest ways are taken; most repetitions of a part."""
        return "".join(self._draw(("ref", "root"), rng, depth, most))

    def _depth(self, node) -> int:
        kind, parts = node
        match kind:
            case "ref":
                return self.least[parts]
            case "any":
                return min(map(self._depth, parts))
            case "all":
                return max(map(self._depth, parts), default=0)
            case "repeat":
                return self._depth(parts[0]) if parts[1] else 0
        return 0

    def _draw(self, node, rng, depth, most):
        kind, parts = node
        match kind:
            case "text":
                yield parts
            case "class":
                yield rng.choice(parts)
            case "ref":
                yield from self._draw(self.rules[parts], rng, depth - 1, most)
            case "all":
                for part in parts:
                    yield from self._draw(part, rng, depth, most)
            case "any":
                near = [p for p in parts if self._depth(p) < depth]
                yield from self._draw(rng.choice(near or [min(parts, key=self._depth)]), rng, depth, most)
            case "repeat":
                part, low, high = parts
                high = low if self._depth(part) >= depth else max(low, min(high, low + rng.choice((0, 0, 1, most))))
                for _ in range(rng.randint(low, high)):
                    yield from self._draw(part, rng, depth, most)


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens[::-1]

    def alternatives(self):
        found = [self._sequence()]
        while self.tokens and self.tokens[-1] == "|":
            self.tokens.pop()
            found.append(self._sequence())
        return ("any", found) if len(found) > 1 else found[0]

    def _sequence(self):
        found = []
        while self.tokens and self.tokens[-1] not in "|)":
            part = self._part(self.tokens.pop())
            while self.tokens and self.tokens[-1][0] in "*+?{":
                sign = self.tokens.pop()
                bounds = {"*": (0, 99), "+": (1, 99), "?": (0, 1)}.get(sign)
                if bounds is None:
                    low, comma, high = sign[1:-1].partition(",")
                    bounds = int(low), int(high or 99) if comma else int(low)
                part = "repeat", (part, *bounds)
            found.append(part)
        return "all", found

    def _part(self, token):
        if token == "(":
            inner = self.alternatives()
            self.tokens.pop()
            return inner
        if token[0] == '"':
            return "text", json.loads(token)
        if token[0] == "[":
            return "class", _members(token[1:-1])
        return "ref", token


def _members(text: str) -> str:
    """The characters of a class, some of those of long ranges, and of what a negated one leaves."""
    negated = text[0] == "^"
    found: list[str] = []
    for low, high in _MEMBER.findall(text[negated:]):
        first, last = ord(_unescape(low)), ord(_unescape(high or low))
        found += map(chr, range(first, last + 1, 1 + (last - first) // 200))
    return "".join(c for c in map(chr, range(32, 127)) if c not in found) if negated else "".join(found)


def _unescape(text: str) -> str:
    return json.loads(f'"{text}"') if text[1:2] in ("n", "u") else text[-1]


@cache
def language(text: str) -> Language:
    return Language(text)


def answer(form, rng: random.Random) -> str:
    """An edit of a parent, as a model held to its grammar might write it."""
    return draw(form.for_engine.ebnf, rng, depth=99, most=1)


def draw(text: str, rng: random.Random, **options) -> str:
    """One sentence of the grammar."""
    return language(text).draw(rng, **options)
