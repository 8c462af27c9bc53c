"""The exception with which a stage ends an evaluation, and verdicts on a worker's death."""

from __future__ import annotations

from typing import Any

from kernelsearch.core.types import Verdict, Word
from kernelsearch.worker.processes.pool import Pool
from kernelsearch.worker.processes.workers import WorkerDied, WorkerHung


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
