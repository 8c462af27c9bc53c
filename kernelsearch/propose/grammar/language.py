"""A set of rules and the one that an answer begins with: its texts for engines, and the check of an answer."""

from __future__ import annotations

from functools import cached_property

from kernelsearch.core.types import content_digest
from kernelsearch.propose.grammar import write
from kernelsearch.propose.grammar.answer import Rejection
from kernelsearch.propose.grammar.check import Mismatch, find_mismatch
from kernelsearch.propose.grammar.rules import Ref, Rules


class Language:
    """Base of dataclasses with the fields rules and start."""

    rules: Rules
    start: Ref

    @cached_property
    def lark(self) -> str:
        return write.lark(self.rules, self.start)

    @cached_property
    def ebnf(self) -> str:
        return write.ebnf(self.rules, self.start)

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

    def refuse(self, text: str, stopped: bool = True) -> Rejection | None:
        """The refusal of an answer that the engine cut short or that is outside the language; None for an allowed one."""
        if not stopped:
            return Rejection(text, "stopped", f"the answer was cut short after {len(text)} characters")
        where = self.mismatch(text)
        return Rejection(text, "grammar", where.sentence(text)) if where else None
