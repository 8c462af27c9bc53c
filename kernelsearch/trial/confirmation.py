"""The confirmed protocol from the driver's side: paired intervals of contestants against every baseline.

One fresh process with seeds of its own times all contestants of a shape, block by block; after every few blocks the
driver looks at the intervals and stops when they are narrow enough or the time is spent. Then the judge checks
the timed outputs that were kept, and the times are compared with other clocks and the datasheet.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from kernelsearch.core.errors import WorkerError
from kernelsearch.core.slow_steps import Say, report_progress
from kernelsearch.core.types import ShapeFact, Verdict
from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.record.store import Store
from kernelsearch.trial.bench import Bench, versions
from kernelsearch.trial.shape_session import (
    COMPILE_LIMIT_S,
    ENTER_LIMIT_S,
    SECONDS,
    ConfirmationPlan,
    ConfirmedShape,
    Contestant,
    ProcessLost,
    ShapeSession,
    ask_session,
)
from kernelsearch.worker.messages.confirm_jobs import Ceilings, MeasureCeilings, Prepare
from kernelsearch.worker.processes.pool import Pool
from kernelsearch.worker.processes.workers import Worker, WorkerDied

__all__ = ["SECONDS", "Confirmation", "ConfirmationPlan", "ConfirmedShape", "Contestant"]

MANY, MOST_AHEAD, CORES = 6, 8, 2
"""Shapes from which on baselines are compiled ahead, the most processes that do, and the processors that each needs."""
TOGETHER = "the process was lost while this kernel was timed among others, and none of them fails alone: {reason}"


class Confirmation:
    """Runs the confirmed protocol for one opened task on its live GPU. As a context manager it ends its process."""

    def __init__(self, bench: Bench, plan: ConfirmationPlan | None = None, say: Say = lambda text: None) -> None:
        self.bench, self.plan, self.say = bench, plan or ConfirmationPlan(), say
        self.pool: Pool = bench.workplace.pool("confirm", 1, fork=False)
        self._preparing: threading.Thread | None = None
        self._worker: Worker | None = None
        self._ended = False

    def __enter__(self) -> Confirmation:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        if self._preparing is not None:
            if self._worker is not None:  # the preparing thread reads from it, and sees it end
                self._worker.handle.kill()
            self._preparing.join()
        self.pool.end_workers()

    def prepare(self) -> None:
        """Starts the process and warms up the baselines in the background; a later confirmation waits for that."""
        self._preparing = threading.Thread(target=self._prepare, daemon=True)
        self._preparing.start()

    def _prepare(self) -> None:
        facts = self.bench.facts
        with contextlib.suppress(WorkerError, WorkerDied, ProcessLost), self.pool.lease() as worker:
            self._worker = worker
            if not self._ended:
                first = (*facts.test_shapes, *facts.shapes)[0].key
                ask_session(worker, Prepare(self.bench.path, first), COMPILE_LIMIT_S)
        self._worker = None

    def _await_prepared(self) -> None:
        """Waits until the process is prepared, before anybody takes the GPU for it."""
        if self._preparing is not None:
            self._preparing.join()

    def measure_ceilings(self) -> dict[str, float]:
        """The best rates of this GPU, measured now. Raises WorkerError."""
        self._await_prepared()
        try:
            with self.bench.gpu, self.pool.lease() as worker:
                answer = ask_session(worker, MeasureCeilings(), ENTER_LIMIT_S)
        except ProcessLost as lost:
            raise WorkerError(f"the confirming worker failed: {lost}") from None
        return dict(answer.values) if isinstance(answer, Ceilings) else {}

    def confirm_shapes(
        self, shapes: Sequence[ShapeFact], contestants_at: Callable[[ShapeFact], Sequence[Contestant]]
    ) -> dict[str, ConfirmedShape]:
        """The results by the shapes' keys; contestants_at says who is timed at a shape, the seed first."""
        self.compile_ahead(shapes)
        return {shape.key: self.confirm_shape(shape, contestants_at(shape)) for shape in shapes}

    def compile_ahead(self, shapes: Sequence[ShapeFact]) -> None:
        """Compiles the baselines of many shapes by several processes: what times them finds that on the disk."""
        if len(shapes) < MANY:
            return
        self._await_prepared()
        number = max(1, min(MOST_AHEAD, len(os.sched_getaffinity(0)) // CORES))
        pool = self.bench.workplace.pool("confirm", number, fork=False)

        def compile_one(shape: ShapeFact) -> None:
            with contextlib.suppress(WorkerError, WorkerDied, ProcessLost), pool.lease() as worker:
                ask_session(worker, Prepare(self.bench.path, shape.key, whole=True), COMPILE_LIMIT_S)

        with self.bench.gpu, report_progress(self.say, "compiling the baselines of all shapes"):
            threads = ThreadPoolExecutor(number)
            try:
                list(threads.map(compile_one, shapes))
            finally:
                threads.shutdown(cancel_futures=True)
                pool.end_workers()

    def find_ceilings(self, store: Store | None, keep: bool = True) -> dict[str, float]:
        """This device's ceilings from the store, or measured now and, with keep, stored."""
        assert self.bench.device is not None
        device = self.bench.device.name
        ceilings = store.load_ceilings(device) if store else {}
        if not ceilings:
            self.say("measuring what this GPU can do at best")
            ceilings = self.measure_ceilings()
            if store and ceilings and keep:
                store.add_ceilings(device, ceilings, versions())
        return ceilings

    def confirm_shape(self, shape: ShapeFact, contestants: Sequence[Contestant]) -> ConfirmedShape:
        """The results at one shape, with those that failed. The first contestant must be the seed.

        When the process is lost while several are timed, the next attempt first calls each alone to find the cause.
        """
        session = ShapeSession(self.bench, self.plan, self.say, shape, contestants)
        failures = session.failures
        alone = together = False
        self._await_prepared()
        if self.bench.runners is not None:
            self.bench.runners.end_workers()  # they keep inputs of the timed shapes in the GPU's memory
        while True:
            try:
                with self.bench.gpu, self.pool.lease() as worker:
                    return session.run(worker, alone=alone)
            except ProcessLost as lost:
                if lost.name in failures or (not lost.name and together):
                    raise WorkerError(f"the confirming worker failed: {lost}") from None
                if lost.name:
                    session.leave_out(lost.name, lost.verdict)
                elif alone:
                    together = True
                    verdict = Verdict(lost.verdict.word, "confirm", TOGETHER.format(reason=lost))
                    for one in contestants:
                        if one.name != SEED and one.name not in failures:
                            session.leave_out(one.name, verdict)
                if len(contestants) > 1 and all(c.name in failures for c in contestants):
                    raise WorkerError(f"the confirming worker failed over every kernel: {lost}") from None
                alone = not lost.name and not alone
                without = ", ".join(failures) or "nobody yet"
                self.say(f"{shape.label}: {lost}; a fresh process goes on without {without}")
