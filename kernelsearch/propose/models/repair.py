"""Repair of refused answers: short reports of compiler and referee, the queue of answers that go back, rules.

A refused answer goes back at most `tries` times, in the same form: the model corrects its answer to the same page, and
the corrected kernel keeps the idea. A frequent failure becomes a short rule for every later prompt.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from kernelsearch.core.types import Verdict, Word
from kernelsearch.propose.engines.base import shorten
from kernelsearch.verify.regime_words import WORDS

REPAIR = "repair"
"""The kind of ask for a correction."""
TRIES = 2
OFTEN = 3
"""A failure becomes a rule after this many times."""
MOST_RULES = 5
LONGEST = 240

_CARET = re.compile(r"^\s*\^+\s*$")
_LOCATION = re.compile(r"^at \d+:\d+:$")


@dataclass(frozen=True)
class FailedAnswer:
    """A model's answer that was refused: kernel is its kernel's digest, or its text's if it gave none.

    number is the ask or trial that refused it.
    """

    kernel: str
    parent: str
    idea: str
    action: str
    text: str
    report: str
    tries: int = 0
    number: int = 0

    @property
    def id(self) -> str:
        return self.idea

    @property
    def kind(self) -> str:
        return REPAIR


def report_verdict(verdict: Verdict) -> str:
    """Reports a verdict in one to three lines: line and message of a compile error, or the first wrong values."""
    detail = verdict.detail
    if verdict.word is Word.COMPILE:
        return _report_compiler(verdict.reason)
    parts = [f"{verdict.word.value}: {clean(verdict.reason)}"]
    if "index" in detail:
        where = f" at {clean(str(detail.get('label') or detail.get('shape')), 80)}" if detail.get("shape") else ""
        index, expected, got = (clean(str(detail.get(n)), 40) for n in ("index", "expected", "got"))
        regime = str(detail.get("regime", "as the task draws them"))
        values = clean(WORDS.get(regime, regime), 80)
        parts.append(f"first wrong element {index}{where}, inputs: {values}: expected {expected}, got {got}")
    if verdict.error_ratio is not None and verdict.word in (Word.WRONG, Word.PRECISION):
        parts.append(f"the error is {verdict.error_ratio:.3g} times what is allowed")
    return "\n".join(parts)


def _report_compiler(message: str) -> str:
    """The offending line and the message of a compiler's text, without its code listing."""
    lines = [line for line in message.splitlines() if line.strip()]
    carets = [i for i, line in enumerate(lines) if _CARET.match(line)]
    if carets and carets[-1] > 0:
        source = lines[carets[-1] - 1].strip()
        after = " ".join(line.strip() for line in lines[carets[-1] + 1 :] if not _LOCATION.match(line.strip()))
        return f"in the line `{clean(source, 120)}`\n{clean(after or 'it does not compile')}"
    return clean(" ".join(lines[-2:]))


def signature_of(text: str) -> str:
    """The key of a kind of failure: its message without names in quotes and numbers."""
    message = text.splitlines()[-1] if text else ""
    return re.sub(r"\d+", "N", re.sub(r"(['\"`])(?:(?!\1).)*\1", "NAME", clean(message, 120)))


@dataclass
class Repairs:
    """The failed answers of one model that may go back, and counts of each kind of failure."""

    tries: int = TRIES
    waiting: dict[str, FailedAnswer] = field(default_factory=dict)
    seen: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def tell(self, failed: FailedAnswer) -> None:
        """A refused kernel; one that was sent back often enough is counted and let go."""
        self.count(failed.report)
        if failed.tries < self.tries:
            self.waiting[failed.kernel] = failed

    def count(self, report: str) -> None:
        key = signature_of(report)
        example = report.splitlines()[-1] if report else ""
        self.seen[key] += 1
        self.examples[key] = min(self.examples.get(key, example), example)  # whatever the order of telling

    def in_order(self) -> list[FailedAnswer]:
        """The failed answers in the order of their turns: the least tried first, then the newest."""
        return sorted(self.waiting.values(), key=lambda f: (f.tries, -f.number, f.kernel))

    def rules(self) -> list[str]:
        """Short rules from frequent failures, most frequent first."""
        often = sorted((-n, key) for key, n in self.seen.items() if n >= OFTEN and key)
        return [f"{-n} answers failed with: {clean(self.examples[key], 160)}" for n, key in often[:MOST_RULES]]


def clean(text: str, most: int = LONGEST) -> str:
    """One printable line of a text from a compiler or a kernel, which cannot look like anything else on the page."""
    return shorten(str(text).replace("```", "'''"), most)
