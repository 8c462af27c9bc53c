"""Pools of workers, which replace those that die or hang, and the folder that all pools of a run share."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

from kernelsearch.core import errors
from kernelsearch.core.errors import WorkerError
from kernelsearch.worker.messages.jobs import JobFailure
from kernelsearch.worker.processes.workers import (
    DiskFull,
    Trunk,
    Worker,
    WorkerDied,
    WorkerGrew,
    WorkerHung,
    WorkerSource,
    code_of,
)

_PROOF_ATTEMPTS = 3


class Pool:
    """A fixed number of workers of one role; `ask` takes a free one and replaces it if it fails.

    proves, if set, tests each worker that replaces a lost one before the worker gets any job. opening, if set, is a job
    and its time limit in seconds: a new worker must answer it before any other.
    """

    def __init__(self, source: WorkerSource, size: int) -> None:
        self.source, self.size = source, size
        self.proves: Callable[[Worker], bool] | None = None
        self.opening: tuple[Any, float] | None = None
        self._lost = False
        self.free: list[Worker | None] = [None] * size
        self._back = threading.Condition()
        self._layers: tuple[str, ...] = ()
        self._missing: tuple[tuple[str, str], ...] = ()
        self._closed = False
        self._leased: set[Worker] = set()

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
    def lease(self, job: Any = None) -> Iterator[Worker]:
        """A worker for this job, or for several in a row; it goes back unless it died.

        Where candidates are kept apart, a worker that has executed another one than the job's is replaced. Raises
        WorkerDied if the pool is closed.
        """
        worker = self._take(job)
        try:
            if self._closed:
                raise WorkerDied("the run has ended")
            if worker is not None and not worker.is_idle:
                worker.kill()
                worker, self._lost = None, True
            elif worker is not None and not worker.may_execute(job):
                worker.kill()
                worker = None
            worker = worker or self._start()
            self._layers, self._missing = worker.layers, worker.missing
            self._leased.add(worker)
            yield worker
        finally:
            if worker is not None:
                self._leased.discard(worker)
                self._lost = self._lost or not worker.alive
            self._give(worker if worker is not None and worker.alive else None)

    def _take(self, job: Any) -> Worker | None:
        """A free place, its worker the best one for the job: one that has executed its code, else a new one."""

        def rank(place: int) -> tuple[int, int]:
            worker = self.free[place]
            if worker is None or not worker.may_execute(job):
                return (int(worker is None), place)
            return (2 + (worker.code == code_of(job)), place)

        with self._back:
            self._back.wait_for(lambda: self.free)
            return self.free.pop(max(range(len(self.free)), key=rank))

    def _give(self, worker: Worker | None) -> None:
        with self._back:
            self.free.append(worker)
            self._back.notify()

    def _start(self) -> Worker:
        """A new worker, which must pass the proof if it replaces a lost one. Raises WorkerError if several fail it."""
        for _ in range(_PROOF_ATTEMPTS):
            worker = self.source.start()
            if self.opening is not None:
                worker.ask(*self.opening)
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

    def ask(self, job: Any, timeout: float, *limits: Any) -> Any:
        """The answer of any free worker to one job; limits as in `Worker.ask`. Raises WorkerDied or WorkerHung.

        If the worker dies, a fresh one gets the job, once: somebody else may have killed the first, and the candidate
        must not pay for that.
        """
        try:
            with self.lease(job) as worker:
                return worker.ask(job, timeout, *limits)
        except WorkerGrew:
            raise
        except (WorkerDied, DiskFull):
            with self.lease(job) as worker:
                return worker.ask(job, timeout, *limits)

    def close(self) -> None:
        """Ends all workers, busy ones too; callers that wait for an answer get WorkerDied."""
        self._closed = True
        for worker in tuple(self._leased):
            worker.handle.kill()
        self.end_workers()
        self.source.close()

    def end_workers(self) -> None:
        """Ends all workers, each when it is idle; the next lease starts a new one."""
        for _ in range(self.size):
            worker = self._take(None)
            if worker is not None:
                worker.kill()
        for _ in range(self.size):
            self._give(None)  # callers that wait for a worker of a closed pool get it, and find the pool closed


class Workplace(contextlib.AbstractContextManager):
    """The private folder of one run's workers and their pools; readable: folders that they may read (the task's)."""

    def __init__(self, readable: tuple[str, ...] = ()) -> None:
        self.readable = readable
        self.cache = tempfile.mkdtemp(prefix="kernelsearch-")
        self.pools: list[Pool] = []
        self._trunk = Trunk(self.cache, readable)

    def pool(self, role: str, size: int, *, fork: bool = True) -> Pool:
        """A pool of workers. Compilers, one for each candidate, have no torch: forks of it take 7 ms longer."""
        trunk = None if role == "compile" else self._trunk
        pool = Pool(WorkerSource(role, self.cache, self.readable, fork=fork, trunk=trunk), size)
        self.pools.append(pool)
        return pool

    def close(self) -> None:
        for pool in self.pools:
            pool.close()
        self._trunk.close()
        shutil.rmtree(self.cache, ignore_errors=True)

    def __exit__(self, *_: object) -> None:
        self.close()


def ask_trusted(pool: Pool, job: Any, timeout: float, slow: str = "") -> Any:
    """The answer of a trusted worker. Raises the error that it names, or WorkerError if it died or hung.

    slow is what to tell the user if it hung: then that is a TaskError.
    """
    try:
        answer = pool.ask(job, timeout)
    except (WorkerDied, WorkerHung) as error:
        if slow and isinstance(error, WorkerHung):
            raise errors.TaskError(slow) from None
        raise WorkerError(f"the {pool.source.role} worker failed: {error}") from None
    if isinstance(answer, JobFailure):
        raise getattr(errors, answer.kind, WorkerError)(answer.message)
    return answer
