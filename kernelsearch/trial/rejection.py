"""The exception with which a stage ends an evaluation, and verdicts that chance may have decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelsearch.core.types import Verdict, Word

CHANCE = (Word.TIMEOUT, Word.CRASH)
"""Verdicts that may differ on another day or a less busy machine."""


def is_by_chance(answer: Any) -> bool:
    """Whether a verdict, or an object that carries one, may differ next time."""
    verdict = getattr(answer, "verdict", answer)
    return isinstance(verdict, Verdict) and verdict.word in CHANCE


def try_twice(judge: Callable[[], Verdict]) -> Verdict:
    """The verdict, from a second attempt if chance may have decided the first: one fault proves nothing."""
    verdict = judge()
    return judge() if is_by_chance(verdict) else verdict


class Rejection(Exception):
    """Carries the verdict that ends an evaluation."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict
