"""Conversations: a branch of the lineage is one, with an answer a round and what was said to it.

A refused answer goes back with its report. An accepted kernel goes back with its times and findings when the search
asks for a rewrite of the best kernel of its conversation and its own numbers are tuned. All is a function of the stored
calls and of the finished trials: what was said in earlier rounds is read from the page of the call that followed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelsearch.core.model_calls import ModelCall
from kernelsearch.propose.engines.base import Ask, format_turn
from kernelsearch.propose.grammar.answer import strip_thinking
from kernelsearch.propose.grammar.whole_kernel import find_file
from kernelsearch.propose.history import Entry, History

LONGEST_PROSE = 4000


@dataclass(frozen=True)
class NextTurn:
    """The next turn after an answer, given by its kernel's digest: what is said to it, and what is asked for."""

    kernel: str
    said: str
    id: str
    action: str
    kind: str


@dataclass
class Conversations:
    """The answers of one model: made gives an answer's call and text by its kernel's digest, or by its text's."""

    history: History
    made: dict[str, tuple[ModelCall, str]] = field(default_factory=dict)
    followed: set[str] = field(default_factory=set)

    def count_before(self, kernel: str) -> int:
        """The number of rounds before the one that gave this answer."""
        follows = self.made[kernel][0].follows if kernel in self.made else ""
        return 1 + self.count_before(follows) if follows else 0

    def is_tuned(self, kernel: str, number: int) -> bool:
        """Whether a kernel is not one of these answers, or is tuned: else its next turn is worth waiting for."""
        entry = self.history.get(kernel) if kernel in self.made else None
        return entry is None or entry.is_tuned(number)

    def list_open(self, parent: str, number: int, rounds: int) -> list[str]:
        """Accepted kernels whose conversations may go on at an ask for a rewrite of this parent, the newest first."""
        found = [
            entry
            for digest, entry in self.history.entries.items()
            if digest in self.made
            and digest not in self.followed
            and entry.is_tuned(number)
            and self._best_of(entry) == parent
            and self.count_before(digest) + 1 < rounds
        ]
        return [e.kernel.digest for e in sorted(found, key=lambda e: -e.number)]

    def read(self, kernel: str) -> tuple[str, tuple[tuple[str, str], ...], str]:
        """The conversation up to an answer: its page, the earlier turns, and the answer as it is shown."""
        call, text = self.made[kernel]
        page, turns = call.page, tuple[tuple[str, str], ...]()
        if call.follows in self.made:
            first, earlier, shown = self.read(call.follows)
            before = format_turn(Ask("", first, None, turns=earlier).text, shown, "")
            if call.page.startswith(before):
                page, turns = first, (*earlier, (shown, call.page.removeprefix(before)))
        return page, turns, _show(text)

    def _best_of(self, entry: Entry) -> str | None:
        """The best kernel of the conversation that ends with this one; each round's parent was the best before."""
        above = self.history.get(entry.parent)
        return entry.kernel.digest if above is None or entry.score < above.score else entry.parent


def _show(text: str) -> str:
    """An answer as later rounds show it: the kernel file without the thinking."""
    file = find_file(text, False)
    return f"```python\n{file}```" if file else strip_thinking(text).strip()[-LONGEST_PROSE:] or "(thinking only)"
