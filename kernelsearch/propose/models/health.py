"""The health of a model: faults of its engine, each told to the user once, and how long it rests after them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from kernelsearch.core.model_calls import ModelCall

IN_A_ROW = 3
"""Failures of an engine in a row after which it rests."""
REST = 10
"""Asks for which it rests then; doubled with each further failure."""
LEAST_PAGE = 256
LEAST_ANSWER = 2048
"""Tokens to which a long answer's limit is cut, at the least, where the context is small."""
UNHELD = 4
"""Answers outside the grammar, with none inside, after which the user reads that the engine ignores it."""

_CONTEXT = re.compile(r"(?:context of|context length is|context length of)\s+([0-9][0-9,]*)")


@dataclass
class Health:
    """The state of one engine, a function of its calls.

    page_tokens and answer_tokens are the most that it may have. room is the most tokens of a whole conversation, where
    one did not fit.
    """

    label: str
    page_tokens: int
    answer_tokens: int
    say: Callable[[str], None]
    outside_means: str = "ignores the grammar"
    outside: int = 0
    inside: int = 0
    in_a_row: int = 0
    rest_until: int = 0
    given_up: bool = False
    room: int | None = None
    sentences: set[str] = field(default_factory=set)

    def is_well(self, number: int) -> bool:
        """True if the engine neither rests at this ask nor is given up."""
        return not self.given_up and number >= self.rest_until

    def tell_once(self, text: str) -> None:
        """Tells the user a sentence, once."""
        if text not in self.sentences:
            self.sentences.add(text)
            self.say(f"model: {text}")

    def note(self, call: ModelCall) -> None:
        """Takes note of a call, new or restored."""
        if call.failure:
            self._note_failure(call)
            return
        self.in_a_row = 0
        stages = Counter(a.stage for a in call.answers)
        self.outside += stages["grammar"]
        self.inside += len(call.answers) - stages["grammar"] - stages["stopped"]
        if self.outside >= UNHELD and not self.inside:
            self.tell_once(f"{self.label} {self.outside_means}: its answers so far were all refused unread")

    def _note_failure(self, call: ModelCall) -> None:
        self.tell_once(call.failure)
        if call.kind == "refused":
            self.given_up = True
            self.tell_once(f"{self.label} is not asked again in this run; the search goes on with typed edits")
        elif call.kind == "context":
            self._shorten(call.failure)
        elif call.kind == "busy":
            self.in_a_row += 1
            if self.in_a_row >= IN_A_ROW:
                rest = REST * 2 ** (self.in_a_row - IN_A_ROW)
                self.rest_until = call.landed + 1 + rest
                self.tell_once(
                    f"{self.label} failed {self.in_a_row} times in a row and rests for {rest} asks; "
                    "the search goes on with typed edits"
                )

    def _shorten(self, failure: str) -> None:
        """Makes prompts shorter: by the context that the engine names, else by half."""
        context = _CONTEXT.search(failure)
        if context:
            tokens = int(context.group(1).replace(",", ""))
            self.answer_tokens = min(self.answer_tokens, max(LEAST_ANSWER, tokens // 2))
            self.page_tokens = min(tokens - self.answer_tokens, self.page_tokens * 3 // 4)
        else:
            self.page_tokens //= 2
        self.room = tokens - self.answer_tokens if context else self.page_tokens
        if self.page_tokens < LEAST_PAGE:
            self.given_up = True
            self.tell_once(
                f"the context of {self.label} is too small for any prompt; the search goes on with typed edits"
            )
