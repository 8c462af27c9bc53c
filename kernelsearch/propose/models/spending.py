"""The cost of models: the calls of a run, its budgets, and their rest.

Calls are stored as they are made, and a resumed run gets them back: nothing is paid for twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kernelsearch.core.model_calls import AnswerRecord, ModelCall
from kernelsearch.propose.engines.base import Ask, Failure, Reply

LEAST_ANSWER = 64
"""Tokens without which no answer is asked for: the shortest edits have as many."""


@dataclass(frozen=True)
class Price:
    """US dollars for a million tokens, in and out."""

    usd_in: float = 0.0
    usd_out: float = 0.0

    def of(self, tokens_in: int, tokens_out: int) -> float:
        """The price of so many tokens, in US dollars."""
        return (self.usd_in * tokens_in + self.usd_out * tokens_out) / 1e6


@dataclass(frozen=True)
class Budget:
    """The budget of a run: tokens (in and out) and dollars, None for no limit."""

    max_tokens: int | None = None
    max_usd: float | None = None
    price: Price = Price()


@dataclass
class Ledger:
    """The calls of a run. keep stores a new one; waiting are stored calls whose asks will be made again, by ask."""

    budget: Budget = Budget()
    keep: Callable[[ModelCall], None] = lambda call: None
    calls: list[ModelCall] = field(default_factory=list)
    waiting: dict[int, deque[ModelCall]] = field(default_factory=dict)

    def restore(self, calls: Sequence[ModelCall], trials: int) -> tuple[list[ModelCall], list[ModelCall]]:
        """Takes back the calls of a run that is resumed after so many trials: (those taken in, those then under way).

        The others are of asks that will be made again, and answer them.
        """
        past = [c for c in calls if c.landed < trials]
        underway = [c for c in calls if c.number < trials <= c.landed]
        self.calls += past
        for call in calls:
            if call.number >= trials:
                self.waiting.setdefault(call.number, deque()).append(call)
        return past, underway

    def take_stored(self, number: int, page: str) -> ModelCall | None:
        """The stored call that an ask repeats, if there is one; it costs nothing and is not stored again."""
        calls = self.waiting.get(number)
        return calls.popleft() if calls and calls[0].page == page else None

    def record_reply(self, call: ModelCall, reply: Reply | Failure, answers: Sequence[AnswerRecord] = ()) -> ModelCall:
        """The call with its answers and their cost, or with the failure."""
        if isinstance(reply, Failure):
            return replace(call, seconds=reply.seconds, failure=reply.reason, kind=reply.kind)
        return replace(
            call,
            answers=tuple(answers),
            tokens_in=reply.tokens_in,
            tokens_cached=reply.tokens_cached,
            tokens_out=reply.tokens_out,
            seconds=reply.seconds,
            usd=self.budget.price.of(reply.tokens_in, reply.tokens_out),
        )

    def add(self, call: ModelCall, again: bool = False) -> None:
        """Counts a call; again: it is stored already."""
        self.calls.append(call)
        if not again:
            self.keep(call)

    @property
    def tokens(self) -> int:
        return sum(c.tokens_in + c.tokens_out for c in self.calls)

    @property
    def left(self) -> int | None:
        """What is left of the token budget; None: there is no such budget."""
        return None if self.budget.max_tokens is None else self.budget.max_tokens - self.tokens

    @property
    def usd(self) -> float:
        return sum(c.usd for c in self.calls)

    @property
    def exhausted(self) -> str:
        """The budget that is used up, in words; empty while there is something left."""
        if self.left is not None and self.left <= 0:
            return f"{self.budget.max_tokens:,} tokens"
        if self.budget.max_usd is not None and self.usd >= self.budget.max_usd:
            return f"${self.budget.max_usd:g}"
        return ""

    def bound(self, ask: Ask, count: Callable[[str], int]) -> Ask | None:
        """The ask with answers no longer than the rest of the token budget; None: it is too small for one.

        Engines count a prompt only roughly before it is asked, so a run may end a little over its budget.
        """
        if self.left is None:
            return ask
        longest = min(ask.max_tokens, (self.left - count(ask.plain)) // ask.n)
        return replace(ask, max_tokens=longest) if longest >= min(ask.max_tokens, LEAST_ANSWER) else None

    def words(self) -> str:
        """Spend so far for the progress line; empty before the first call."""
        if not self.calls:
            return ""
        if not self.tokens:  # a program that does not count them
            return f"{len(self.calls)} answers asked for"
        return f"{format_count(self.tokens)} tokens" + (f" ${self.usd:.2f}" if self.usd else "")


def format_count(number: float) -> str:
    """A count in three digits: 950, 12.3k, 4.56M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.0f}"
