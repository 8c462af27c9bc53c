"""The driver's workers: pools that replace the ones that die or hang, and the folder that all of a run's pools share."""

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

from kernelsearch.core.errors import WorkerError
from kernelsearch.worker.messages.jobs import Failure
from kernelsearch.worker.processes.handle import DiskFull, Worker, WorkerDied, WorkerGrew, WorkerHung
from kernelsearch.worker.processes.source import Source


class Pool:
    """A fixed number of workers of one role; `ask` takes a free one and replaces it when it fails.

    proves, if given, is asked of each worker that takes the place of a lost one, before anybody else may ask it.
    """

    def __init__(self, source: Source, size: int) -> None:
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
        """The isolation layers of this pool's last started worker; one is started if none has run yet."""
        if not self._layers:
            with self.lease():
                pass
        return self._layers

    @property
    def missing(self) -> tuple[tuple[str, str], ...]:
        """(layer, reason) of each layer that this pool's workers asked for and did not get."""
        return self._missing if self.layers else ()

    @contextlib.contextmanager
    def lease(self) -> Iterator[Worker]:
        """A worker for several questions in a row; it goes back unless it died. Raises WorkerDied once the pool is closed."""
        worker = self.free.get()
        try:
            if self._closed:
                raise WorkerDied("the run has ended")
            if worker is not None and not worker.idle:
                worker.kill()
                worker, self._lost = None, True
            worker = worker or self._started()
            self._layers, self._missing = worker.layers, worker.missing
            self._leased.add(worker.pid)
            yield worker
        finally:
            if worker is not None:
                self._leased.discard(worker.pid)
                self._lost = self._lost or not worker.alive
            self.free.put(worker if worker is not None and worker.alive else None)

    def _started(self) -> Worker:
        """A new worker; where one was lost, one that is proven. Raises WorkerError when none of a few is."""
        worker = self.source.start()
        if self.proves is None or not self._lost:
            return worker
        for last in (False, False, True):
            if self.proves(worker):
                self._lost = False
                return worker
            worker.kill()
            if not last:
                worker = self.source.start()
        raise WorkerError(
            f"fresh {self.source.role} workers do not compute a known kernel rightly: is the GPU in order?"
        )

    def warm(self) -> None:
        """Begins to start the first worker in the background, so that its imports overlap with other work."""
        threading.Thread(target=self._warmed, daemon=True).start()

    def _warmed(self) -> None:
        with contextlib.suppress(WorkerError), self.lease():
            pass  # a worker that cannot start says so to the first who asks

    def ask(self, job: Any, timeout: float) -> Any:
        """One question to any free worker. Raises WorkerDied or WorkerHung.

        When the worker dies the question goes to a fresh one, once: somebody else may have killed it, and a candidate
        that did nothing must not pay for that.
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
        """Ends all workers, those in the middle of a job too; who waits for an answer gets WorkerDied."""
        self._closed = True
        for pid in tuple(self._leased):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        for _ in range(self.size):
            worker = self.free.get()
            if worker is not None:
                worker.kill()
        for _ in range(self.size):
            self.free.put(None)  # who still waits for a worker finds the pool closed
        self.source.close()


class Workplace:
    """The private folder of one run's workers, and the pools that live in it; readable: the task's folder."""

    def __init__(self, readable: tuple[str, ...] = ()) -> None:
        self.readable = readable
        self.cache = tempfile.mkdtemp(prefix="kernelsearch-")
        self.pools: list[Pool] = []

    def pool(self, role: str, size: int, *, fork: bool = True) -> Pool:
        pool = Pool(Source(role, self.cache, self.readable, fork=fork), size)
        self.pools.append(pool)
        return pool

    def close(self) -> None:
        for pool in self.pools:
            pool.close()
        shutil.rmtree(self.cache, ignore_errors=True)

    def __enter__(self) -> Workplace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def trusted(pool: Pool, job: Any, timeout: float) -> Any:
    """The answer of a trusted worker. Raises the error that it names, or WorkerError when it died or hung."""
    try:
        answer = pool.ask(job, timeout)
    except (WorkerDied, WorkerHung) as error:
        raise WorkerError(f"the {pool.source.role} worker failed: {error}") from None
    if isinstance(answer, Failure):
        from kernelsearch.core import errors

        raise getattr(errors, answer.kind, WorkerError)(answer.message)
    return answer
