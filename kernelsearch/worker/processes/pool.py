"""Pools of workers, which replace those that die or hang, and the folder that all pools of a run share."""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kernelsearch.core import errors
from kernelsearch.core.errors import WorkerError
from kernelsearch.worker.messages.jobs import JobFailure
from kernelsearch.worker.processes.workers import DiskFull, Worker, WorkerDied, WorkerGrew, WorkerHung, WorkerSource

_PROOF_ATTEMPTS = 3


class Pool:
    """A fixed number of workers of one role; `ask` takes a free one and replaces it if it fails.

    proves, if set, tests each worker that replaces a lost one before the worker gets any job.
    """

    def __init__(self, source: WorkerSource, size: int) -> None:
        self.source, self.size = source, size
        self.proves: Callable[[Worker], bool] | None = None
        self._lost = False
        self.free: queue.LifoQueue[Worker | None] = queue.LifoQueue()
        self._layers: tuple[str, ...] = ()
        self._missing: tuple[tuple[str, str], ...] = ()
        self._closed = False
        self._leased: set[int] = set()
        for _ in range(size):
            self.free.put(None)

    @property
    def layers(self) -> tuple[str, ...]:
        """The isolation layers of the worker that was leased last; starts one if there is none yet."""
        if not self._layers:
            with self.lease():
                pass
        return self._layers

    @property
    def missing(self) -> tuple[tuple[str, str], ...]:
        """(layer, reason) of each layer that this pool's workers wanted and did not get."""
        return self._missing if self.layers else ()

    @contextlib.contextmanager
    def lease(self) -> Iterator[Worker]:
        """A worker for several jobs in a row; it goes back unless it died. Raises WorkerDied if the pool is closed."""
        worker = self.free.get()
        try:
            if self._closed:
                raise WorkerDied("the run has ended")
            if worker is not None and not worker.is_idle:
                worker.kill()
                worker, self._lost = None, True
            worker = worker or self._start()
            self._layers, self._missing = worker.layers, worker.missing
            self._leased.add(worker.pid)
            yield worker
        finally:
            if worker is not None:
                self._leased.discard(worker.pid)
                self._lost = self._lost or not worker.alive
            self.free.put(worker if worker is not None and worker.alive else None)

    def _start(self) -> Worker:
        """A new worker, which must pass the proof if it replaces a lost one. Raises WorkerError if several fail it."""
        for _ in range(_PROOF_ATTEMPTS):
            worker = self.source.start()
            if self.proves is None or not self._lost:
                return worker
            if self.proves(worker):
                self._lost = False
                return worker
            worker.kill()
        raise WorkerError(f"fresh {self.source.role} workers compute a known kernel wrongly: check that the GPU works")

    def warm(self) -> None:
        """Starts the first worker in the background, so that its imports overlap with other work."""

        def start_one() -> None:
            with contextlib.suppress(WorkerError, WorkerDied), self.lease():
                pass  # the first job gets the error of a worker that cannot start

        threading.Thread(target=start_one, daemon=True).start()

    def ask(self, job: Any, timeout: float) -> Any:
        """The answer of any free worker to one job. Raises WorkerDied or WorkerHung.

        If the worker dies, a fresh one gets the job, once: somebody else may have killed the first, and the candidate
        must not pay for that.
        """
        try:
            with self.lease() as worker:
                return worker.ask(job, timeout)
        except WorkerGrew:
            raise
        except (WorkerDied, DiskFull):
            with self.lease() as worker:
                return worker.ask(job, timeout)

    def close(self) -> None:
        """Ends all workers, busy ones too; callers that wait for an answer get WorkerDied."""
        self._closed = True
        for pid in tuple(self._leased):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for _ in range(self.size):
            worker = self.free.get()
            if worker is not None:
                worker.kill()
        for _ in range(self.size):
            self.free.put(None)  # callers that still wait for a worker find the pool closed
        self.source.close()


class Workplace(contextlib.AbstractContextManager):
    """The private folder of one run's workers and their pools; readable: folders that they may read (the task's)."""

    def __init__(self, readable: tuple[str, ...] = ()) -> None:
        self.readable = readable
        self.cache = tempfile.mkdtemp(prefix="kernelsearch-")
        self.pools: list[Pool] = []

    def pool(self, role: str, size: int, *, fork: bool = True) -> Pool:
        pool = Pool(WorkerSource(role, self.cache, self.readable, fork=fork), size)
        self.pools.append(pool)
        return pool

    def close(self) -> None:
        for pool in self.pools:
            pool.close()
        shutil.rmtree(self.cache, ignore_errors=True)

    def __exit__(self, *_: object) -> None:
        self.close()


def ask_trusted(pool: Pool, job: Any, timeout: float) -> Any:
    """The answer of a trusted worker. Raises the error that it names, or WorkerError if it died or hung."""
    try:
        answer = pool.ask(job, timeout)
    except (WorkerDied, WorkerHung) as error:
        raise WorkerError(f"the {pool.source.role} worker failed: {error}") from None
    if isinstance(answer, JobFailure):
        raise getattr(errors, answer.kind, WorkerError)(answer.message)
    return answer
