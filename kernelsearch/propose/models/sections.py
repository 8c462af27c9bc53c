"""A page in sections within a budget of tokens: what is worth least is left out first, and the page says what was."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

RESERVE = 64
"""Tokens that are left for a chat template."""
LEFT_OUT = "LEFT OUT FOR WANT OF ROOM"


@dataclass(frozen=True)
class Section:
    """A heading and its lines. Parts of worth 0 always stay, others in the order of their worth, cut from the end."""

    heading: str
    lines: tuple[str, ...]
    worth: int = 0


class FittedPage(NamedTuple):
    """A page's text, and what it had no room for, in words."""

    text: str
    left_out: str = ""


class TooLong(Exception):
    """Raised when the parts that always stay do not fit; tokens is their number."""

    def __init__(self, tokens: int) -> None:
        super().__init__(f"{tokens} tokens")
        self.tokens = tokens


def fit_sections(sections: Sequence[Section], system: str, count: Callable[[str], int], budget: int) -> FittedPage:
    """The page within a budget of tokens, the system message included. Raises TooLong."""
    parts = [p for p in sections if p.lines]
    room = budget - RESERVE - count(system)
    whole = join_sections(parts)
    if count(whole) <= room:
        return FittedPage(whole)
    cut = [p for p in parts if p.worth]
    room -= count(join_sections([_name_left_out([(p, p.lines) for p in cut])]))
    shown = [replace(p, lines=() if p.worth else p.lines) for p in parts]
    least = count(join_sections(shown))
    if least > room:
        raise TooLong(budget + least - room)
    for part in sorted(cut, key=lambda p: p.worth):
        at = parts.index(part)

        def size(lines: int, at: int = at, part: Section = part) -> int:
            return count(join_sections([*shown[:at], replace(part, lines=part.lines[:lines]), *shown[at + 1 :]]))

        shown[at] = replace(part, lines=part.lines[: bisect_right(range(1, len(part.lines) + 1), room, key=size)])
    left = _name_left_out((p, p.lines[len(s.lines) :]) for p, s in zip(parts, shown, strict=True))
    return FittedPage(join_sections([*shown[:-1], left, shown[-1]]), left.lines[0])


def _name_left_out(left: Iterable[tuple[Section, Sequence[str]]]) -> Section:
    names = [f"{len(lines)} of {len(p.lines)} under {p.heading}" for p, lines in left if lines]
    return Section(LEFT_OUT, ("; ".join(names),))


def join_sections(parts: Iterable[Section]) -> str:
    """The sections as one text, without the empty ones."""
    return "\n\n".join("\n".join((p.heading, *p.lines)) for p in parts if p.lines)
