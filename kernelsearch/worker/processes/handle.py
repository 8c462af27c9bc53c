"""One worker process, seen from the driver: asked one thing at a time, watched while it answers, killed when it must be."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Any, Protocol

from kernelsearch.core.errors import WorkerError
from kernelsearch.worker.isolation import sandbox
from kernelsearch.worker.messages.channel import Channel, ChannelClosed, ChannelTimeout
from kernelsearch.worker.messages.jobs import Last

START_TIMEOUT_S = 120.0
_LOOK_S = 0.1
"""How often a worker that runs candidate code is asked what memory it uses."""


class Origin(Protocol):
    """What a worker knows of where it came from: its role, the workers' common folder, and their last complaint."""

    role: str
    cache: str

    def complaint(self) -> str: ...


class WorkerDied(Exception):
    """The worker's process ended during a job."""


class WorkerGrew(WorkerDied):
    """The worker used more memory than it may and was killed."""


class WorkerHung(Exception):
    """The worker did not answer in time and was killed."""


class DiskFull(WorkerError):
    """A worker found no room for its files: no fault of what it was asked."""


class Worker:
    """One worker process, asked one thing at a time."""

    def __init__(self, channel: Channel, source: Origin, process: subprocess.Popen | None = None) -> None:
        self.channel, self.source = channel, source
        self.process = process
        hello = channel.receive(START_TIMEOUT_S)
        self.pid, self.alive = hello.pid, True
        self.layers, self.missing = hello.layers, hello.missing

    def ask(self, job: Any, timeout: float) -> Any:
        """The answer. Raises WorkerDied, WorkerHung or DiskFull, after which this worker is gone."""
        deadline = time.monotonic() + timeout
        try:
            self.channel.send(job, timeout)
            self._watch(deadline)
            answer = self.channel.receive(max(0.0, deadline - time.monotonic()))
        except ChannelTimeout:
            self.kill()
            raise WorkerHung(f"no answer within {timeout:g} s") from None
        except ChannelClosed as error:
            self.kill()
            raise WorkerDied(f"its process ended ({error}){self.source.complaint()}") from None
        if isinstance(answer, Last):
            self.kill()  # and what it wrote is removed
            if answer.full:
                place = os.path.dirname(self.source.cache)
                raise DiskFull(f"no disk space is left in {place} for the workers' files: free some, or set TMPDIR")
            return answer.answer
        return answer

    def _watch(self, deadline: float) -> None:
        """Waits for the answer's beginning or the deadline. Raises WorkerGrew."""
        limit = sandbox.resident_limit(self.source.role)
        while not self.channel.waiting(min(_LOOK_S, deadline - time.monotonic())):
            if limit is not None and sandbox.resident_bytes(self.pid) > limit:
                self.kill()
                raise WorkerGrew(f"it used more than {limit / 2**30:.1f} GiB of memory")
            if time.monotonic() >= deadline:
                return

    @property
    def idle(self) -> bool:
        """Whether it is there, and silent: a worker that ended, or speaks unasked, is not to be asked anything."""
        return self.alive and not self.channel.waiting()

    def kill(self) -> None:
        self.alive = False
        for end in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(self.pid, signal.SIGKILL)
        self.channel.close()
        if self.process is not None:
            self.process.wait()
        sandbox.discard(self.source.cache, self.source.role, self.pid)
