"""Trials that were told and are not stored yet, because one before them, or they themselves, await a `full` verdict.

A new best is judged at full depth before it counts, which takes seconds where its test shapes compile slowly, and nothing
could be asked meanwhile. So the run goes on as if that verdict were accept, as it nearly always is, and holds
back what it did since. When the verdict is a rejection, all that was held is dropped and the run is replayed from its
rows: it has then told what it would have told by waiting, and only time was lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace

from kernelsearch.core.types import Trial
from kernelsearch.record.rows import Structure

MOST = 256
"""Trials that may be held; then the run waits. A kill loses no more than these."""


class Mistaken(Exception):
    """What was taken for accepted is rejected: the run has to be told again. Never leaves this package."""


@dataclass(frozen=True)
class HeldTrial:
    """proof is the outcome to come with the `full` verdict, None where nothing is awaited; stored: its row is there."""

    trial: Trial
    structure: Structure | None
    proof: Future | None
    stored: bool


@dataclass
class Held:
    """settle(trial, held) stores and reports one trial, in order; pool is where `full` verdicts are reached."""

    settle: Callable[[Trial, HeldTrial], None]
    pool: Executor
    waiting: deque[HeldTrial] = field(default_factory=deque)

    def settle_pending(self, most: int = MOST) -> Iterator[Future]:
        """Settles what can be settled; waits, by yielding, until at most so many are held. Raises Mistaken."""
        while self.waiting:
            held = self.waiting[0]
            trial = held.trial
            if held.proof is not None:
                if len(self.waiting) <= most and not held.proof.done():
                    return
                yield held.proof
                outcome = held.proof.result()
                trial = replace(trial, outcome=outcome, score=trial.score if outcome.measurement else None)
            self.waiting.popleft()
            self.settle(trial, held)
            if not trial.accepted and held.trial.accepted:
                raise Mistaken
