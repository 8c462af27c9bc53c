"""Writes a rule set in the dialects that engines take: EBNF for xgrammar, Lark for llguidance.

Only literals, alternatives and references are used: no character classes, no repetitions, no parametric rules. What
one dialect accepts the other does too, and no number can have a leading zero.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from kernelsearch.propose.grammar.rules import Alternative, Ref, Rules


def lark(rules: Rules, start: Ref) -> str:
    """The grammar for llguidance; its start rule is `start`."""
    return _written(rules, start, lambda r: "start" if r == start else f"r{r}", ": ")


def ebnf(rules: Rules, start: Ref) -> str:
    """The grammar for xgrammar; its start rule is `root`."""
    return _written(rules, start, lambda r: "root" if r == start else f"r{r}", " ::= ")


def _written(rules: Rules, start: Ref, name: Callable[[Ref], str], sign: str) -> str:
    def written(alternative: Alternative) -> str:
        return " ".join(json.dumps(p) if isinstance(p, str) else name(p) for p in alternative) or '""'

    lines = []
    for ref in rules.reached(start):
        body = " | ".join(written(a) for a in rules.rules[ref].alternatives)
        lines.append(f"{name(ref)}{sign}{body}")
    return "\n".join(lines) + "\n"
