"""The loops of a TTIR or TTGIR text before their values are known: what each carries from one iteration to the next.

A loop's counters are read from the end of its body, which a walk from the top meets too late; so this pass comes first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

LINE = re.compile(r'^\s*(?:(%[\w$.-]+)(?::\d+)?\s*=\s*)?"?([a-z_]+\.[\w.]+)"?(.*)$')
NAME = re.compile(r"%[\w$.-]+(?:#\d+)?")
_FOR = re.compile(r"(%[\w$.-]+) = (\S+) to (\S+) step (\S+?)(?: iter_args\((.*?)\))?(?: ->|\s*:|\s*\{)")
_WHILE = re.compile(r"\s*\((.*?)\) :")
_PAIR = re.compile(r"(%[\w$.-]+) = (%[\w$.-]+(?:#\d+)?)")
_BLOCK = re.compile(r"(%[\w$.-]+): ")
_LESS = {"slt": 0, "ult": 0, "sle": 1, "ule": 1}
"""Comparisons of a counter with its end, and what to add to that end."""


@dataclass
class LoopText:
    """One loop of the text, by the names of its values.

    ends are its variable (empty for a `while`), first value, end and step; None where they are not read. beyond is what
    a `while` adds to its end. carried has (name, start) of every value that the loop carries; results are places in
    carried, in the order of inside, the names in the body; yields are the next values. made has the operation and the
    operands of each value that the body itself computes.
    """

    ends: tuple[str, str, str, str] | None = None
    beyond: int = 0
    carried: Sequence[tuple[str, str]] = ()
    results: Sequence[int] = ()
    inside: Sequence[str] = ()
    yields: Sequence[str] = ()
    made: dict[str, tuple[str, list[str]]] = field(default_factory=dict)

    def change_of(self, place: int) -> tuple[int, str] | None:
        """(Sign, name) of what each iteration adds to a carried value; (0, "") for nothing, None for any other change.

        Only what was made outside the loop is the same in every iteration.
        """
        if place not in self.results or len(self.yields) != len(self.carried) or len(self.inside) != len(self.results):
            return None
        own, new = self.inside[self.results.index(place)], self.yields[place]
        name, operands = self.made.get(new, ("", []))
        if own == new:
            return 0, ""
        if name not in ("arith.addi", "arith.subi") or own not in operands or len(operands) != 2:
            return None
        other = operands[operands[0] == own]
        if other == own or other in self.made or (name == "arith.subi" and operands[0] != own):
            return None
        return (1 if name == "arith.addi" else -1), other


def find_loops(lines: Sequence[str]) -> dict[int, LoopText]:
    """The loops of a text by the number of their first line."""
    loops: dict[int, LoopText] = {}
    regions: list[LoopText | None] = []
    for number, line in enumerate(lines):
        bare = line.strip()
        if bare.startswith("}"):
            ended = regions.pop() if regions else None
            if bare.endswith("{"):
                regions.append(ended if bare.startswith("} do") else None)
            continue
        inner = regions[-1] if regions else None
        if bare.startswith("^") and inner is not None:
            inner.inside = _BLOCK.findall(bare)
        operation = LINE.match(line)
        if operation is None:
            continue
        result, name, rest = operation.groups()
        operands = NAME.findall(rest.partition(" : ")[0])
        if inner is not None:
            _take(inner, result, name, rest, operands)
        if bare.endswith("{"):
            loop = _begin(name, rest)
            if loop is not None:
                loops[number] = loop
            regions.append(loop)
    return loops


def _begin(name: str, rest: str) -> LoopText | None:
    if name == "scf.for" and (header := _FOR.search(rest)):
        variable, first, last, step, carried = header.groups()
        pairs = _PAIR.findall(carried or "")
        return LoopText((variable, first, last, step), 0, pairs, range(len(pairs)), [n for n, _ in pairs])
    if name == "scf.while" and (header := _WHILE.match(rest)):
        return LoopText(carried=_PAIR.findall(header.group(1)))
    return LoopText() if name in ("scf.for", "scf.while") else None


def _take(loop: LoopText, result: str | None, name: str, rest: str, operands: list[str]) -> None:
    """Reads one operation of a loop's own body."""
    own = [n for n, _ in loop.carried]
    if name == "scf.yield":
        loop.yields = operands
        if loop.ends is not None and not loop.ends[0]:  # a `while` has a step only if its counter counts up evenly
            change = loop.change_of(own.index(loop.ends[3]))
            loop.ends = (*loop.ends[:3], change[1]) if change is not None and change[0] == 1 else None
    elif name == "scf.condition" and operands:
        loop.results = [own.index(n) if n in own else -1 for n in operands[1:]]
        test, compared = loop.made.get(operands[0], ("", []))
        if test in _LESS and len(compared) == 2 and compared[0] in own and compared[1] not in (*own, *loop.made):
            loop.ends = "", loop.carried[own.index(compared[0])][1], compared[1], compared[0]
            loop.beyond = _LESS[test]
    elif result is not None:
        loop.made[result] = (rest.split(",")[0].strip() if name == "arith.cmpi" else name, operands)
