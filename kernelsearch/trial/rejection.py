"""The exception with which a stage ends an evaluation, and verdicts on a worker's death."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelsearch.core.types import Verdict, Word
from kernelsearch.worker.processes.pool import Pool
from kernelsearch.worker.processes.workers import WorkerDied, WorkerHung

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


def ask_or_reject(pool: Pool, job: Any, limit_s: float, stage: str) -> Any:
    """A worker's answer to a job that runs candidate code. Raises Rejection when that makes the worker hang or die."""
    try:
        return pool.ask(job, limit_s)
    except WorkerHung:
        raise Rejection(Verdict(Word.TIMEOUT, stage, f"did not finish within {limit_s:g} s")) from None
    except WorkerDied as died:
        raise Rejection(Verdict(Word.CRASH, stage, f"the worker died: {died}")) from None
