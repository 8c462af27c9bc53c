"""Builds on processors that no actor has, of nodes without a GPU above all: Ray places each where one is free.

A build is a task of Ray's with the job and the answer of a compile worker, and runs in such a worker there: behind the
same isolation, and read by the same channel. Whoever asked checks the binary as if it came from its own worker.
"""

from __future__ import annotations

import os
import tempfile
import threading
from functools import cache
from typing import Any

from kernelsearch.worker.messages.jobs import Compile, Compiled
from kernelsearch.worker.processes.pool import Pool, Workplace
from kernelsearch.worker.processes.workers import WorkerHung

PATIENCE = 3.0
"""Times its limit that a build may take on another node, with its wait for a processor, before it is done here."""


class SharedCompilers:
    """An actor's own compile workers, and, when all of them are busy, so many places on other nodes.

    missing is the isolation that workers there lack, as a pool has it.
    """

    def __init__(self, own: Pool, places: int, missing: tuple[tuple[str, str], ...]) -> None:
        self.own, self.source, self.missing = own, own.source, missing
        self.size = own.size + places
        self._free = threading.Semaphore(own.size)

    def ask(self, job: Compile, timeout: float) -> Compiled:
        """The answer of a compile worker; of an own one if the other is lost. Raises WorkerDied or WorkerHung."""
        own = self._free.acquire(blocking=False)
        try:
            if not own and (answer := ask_cluster(job, timeout)) is not None:
                return answer
            return self.own.ask(job, timeout)
        finally:
            if own:
                self._free.release()


def ask_cluster(job: Compile, timeout: float) -> Compiled | None:
    """The answer of a compile worker on some node; None if it was lost. Raises WorkerHung."""
    import ray

    task = ray.remote(compile_here).options(num_cpus=1, name=f"compile {job.name[:8]}").remote(job, timeout)
    try:
        return ray.get(task, timeout=PATIENCE * timeout)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, WorkerHung):
            raise error.cause from None
    except ray.exceptions.GetTimeoutError:
        ray.cancel(task, force=True)
    except ray.exceptions.RayError:
        pass  # Ray has tried other nodes
    return None


def compile_here(job: Compile, timeout: float) -> Any:
    """What a compile worker of this node answers; runs in a process of Ray's, which keeps what forks workers."""
    return _own_pool().ask(job, timeout)


def find_missing_layers() -> tuple[tuple[str, str], ...]:
    """(layer, reason) of each isolation layer that compile workers of this node lack."""
    return _own_pool().missing


@cache
def _own_pool() -> Pool:
    tempfile.tempdir = os.getcwd()  # the job's folder there, which Ray removes: it ends this process without a word
    return Workplace().pool("compile", 1)
