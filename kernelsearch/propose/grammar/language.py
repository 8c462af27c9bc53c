"""A set of rules and the one that an answer begins with: its texts for engines, and the check of an answer.

The texts are EBNF for xgrammar and Lark for llguidance. Only literals, alternatives and references are used: no
character classes, no repetitions, no parametric rules. Both dialects accept the same language, and no number can have a
leading zero.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cached_property

from kernelsearch.core.types import content_digest
from kernelsearch.propose.grammar.answer import AnswerRejection
from kernelsearch.propose.grammar.check import Mismatch, find_mismatch
from kernelsearch.propose.grammar.rules import GrammarPart, Ref, Rules


class Language:
    """Base of dataclasses with the fields rules and start."""

    rules: Rules
    start: Ref
    after_thought = None

    @cached_property
    def lark(self) -> str:
        return write_lark(self.rules, self.start)

    @cached_property
    def ebnf(self) -> str:
        return write_ebnf(self.rules, self.start)

    @cached_property
    def digest(self) -> str:
        """Hash of the grammar's text."""
        return content_digest(self.lark)

    @property
    def longest(self) -> int:
        """Bytes of the longest answer."""
        return self.rules.rules[self.start].longest

    def mismatch(self, text: str) -> Mismatch | None:
        """The place at which text leaves the language, by the rules and no engine; None for an allowed answer."""
        return find_mismatch(self.rules, self.start, text)

    def refuse(self, text: str, stopped: bool = True) -> AnswerRejection | None:
        """The refusal of an answer that the engine cut short or that is outside the language; else None."""
        if not stopped:
            return AnswerRejection(text, "stopped", f"the answer was cut short after {len(text)} characters")
        where = self.mismatch(text)
        return AnswerRejection(text, "grammar", where.sentence(text)) if where else None


def write_lark(rules: Rules, start: Ref) -> str:
    """The grammar for llguidance; its start rule is `start`."""
    return _write(rules, start, lambda r: "start" if r == start else f"r{r}", ": ", _LEXEMES.findall)


def write_ebnf(rules: Rules, start: Ref) -> str:
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
