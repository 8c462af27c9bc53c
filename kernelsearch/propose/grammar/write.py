"""Writes a rule set in the dialects that engines take: EBNF for xgrammar, Lark for llguidance.

Only literals, alternatives and references are used: no character classes, no repetitions, no parametric rules. Both
dialects accept the same language, and no number can have a leading zero.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from kernelsearch.propose.grammar.rules import GrammarPart, Ref, Rules


def lark(rules: Rules, start: Ref) -> str:
    """The grammar for llguidance; its start rule is `start`."""
    return _write(rules, start, lambda r: "start" if r == start else f"r{r}", ": ", _LEXEMES.findall)


def ebnf(rules: Rules, start: Ref) -> str:
    """The grammar for xgrammar; its start rule is `root`."""
    return _write(rules, start, lambda r: "root" if r == start else f"r{r}", " ::= ", lambda text: [text])


_LEXEMES = re.compile(
    r"""(?:LINE|BEFORE|DELETE)\ \d+\n | EDIT\ \w+\ \d+\n | SET\ \S+\ |
    tl\.\w+\(? | (?:\.\w+)+\(? | [A-Za-z_]\w* | \d+(?:\.\d+)?(?:e[+-]?\d+)? | "[^"]*" | \[:,\ None\] | \[None,\ :\] |
    \ (?:[-+*/%&|<>=!]+|in)\  | ,\  | \n | \ + | [-+*/%&|<>=!~]+ | .""",
    re.VERBOSE,
)
"""llguidance lexes by maximal munch: literals are cut where Python's tokens end (an operator
keeps its spaces, a call its parenthesis), so that none can swallow the beginning of the next."""


def _write(rules: Rules, start: Ref, name: Callable[[Ref], str], sign: str, cut: Callable[[str], list[str]]) -> str:
    def texts(part: GrammarPart) -> list[str]:
        return [name(part)] if isinstance(part, int) else [json.dumps(piece) for piece in cut(part)]

    lines = []
    for ref in rules.reachable_from(start):
        bodies = (" ".join(t for part in a for t in texts(part)) for a in rules.rules[ref].alternatives)
        lines.append(f"{name(ref)}{sign}{' | '.join(bodies)}")
    return "\n".join(lines) + "\n"
