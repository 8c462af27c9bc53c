"""Trials that were told and are not stored yet, because they or an earlier one await a `full` verdict.

A new best is judged at full depth before it counts. That takes seconds where its test shapes compile slowly, and
nothing could be asked meanwhile. So the run goes on as if that verdict were accept, as it nearly always is, and stores
nothing of what follows. When the verdict is a rejection, those trials are dropped and the run is replayed from its
rows: it then is the run that waited, and only time was lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace

from kernelsearch.core.types import Trial

MOST = 256
"""Trials that may be pending; then the run waits. A kill loses no more than these."""


class ProofRejected(Exception):
    """A trial that was taken for accepted is rejected: the run must be told again. Never leaves this package."""


@dataclass
class PendingTrials:
    """The pending trials, each with the future of its outcome at full depth (None: no verdict is awaited).

    settle(trial) stores and reports one, in order; pool runs the `full` verdicts.
    """

    settle: Callable[[Trial], None]
    pool: Executor
    waiting: deque[tuple[Trial, Future | None]] = field(default_factory=deque)

    def settle_pending(self, most: int = MOST) -> Iterator[Future]:
        """Settles trials in order; yields what it waits for until at most `most` remain. Raises ProofRejected."""
        while self.waiting:
            assumed, proof = self.waiting[0]
            trial = assumed
            if proof is not None:
                if len(self.waiting) <= most and not proof.done():
                    return
                yield proof
                outcome = proof.result()
                trial = replace(trial, outcome=outcome, score=trial.score if outcome.measurement else None)
            self.waiting.popleft()
            self.settle(trial)
            if assumed.accepted and not trial.accepted:
                raise ProofRejected
