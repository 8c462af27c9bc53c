"""Worker processes as the driver sees them: where they come from, one job at a time, killed if they hang or grow."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from kernelsearch.core.errors import WorkerError
from kernelsearch.worker.isolation import sandbox
from kernelsearch.worker.messages.channel import Channel, ChannelClosed, ChannelTimeout, Last
from kernelsearch.worker.processes.handle import ProcessHandle

START_TIMEOUT_S = 120.0
_MEMORY_CHECK_S = 0.1
"""Seconds between two looks at the memory of a worker that runs candidate code."""
_LEAST_PROCESSOR = 0.1
"""The share of a processor that a worker timed by CPU gets at least; with less, the wall clock ends its job."""
_ASLEEP_S = 6.0
"""Seconds in which a worker timed by CPU takes none: what it waits for does not come. A busy machine gives it some."""


@dataclass
class Spent:
    """What a job took: CPU seconds, and the most bytes of memory that were seen."""

    seconds: float = 0.0
    memory: int = 0


class WorkerDied(Exception):
    """The worker's process ended during a job."""


class WorkerGrew(WorkerDied):
    """The worker used more memory than it may, and was killed."""


class WorkerHung(Exception):
    """The worker did not answer in time, and was killed."""


class DiskFull(WorkerError):
    """A worker found no room for its files, which is no fault of its job."""


class Worker:
    """One worker process, which does one job at a time."""

    def __init__(self, channel: Channel, source: WorkerSource, process: subprocess.Popen | None = None) -> None:
        self.channel, self.source = channel, source
        self.process = process
        hello = channel.receive(START_TIMEOUT_S)
        self.pid, self.alive = hello.pid, True
        self.handle = ProcessHandle(hello.pid)
        self.code = ""
        self.layers, self.missing = hello.layers, hello.missing

    def ask(self, job: Any, timeout: float, memory: int | None = None, spent: Spent | None = None) -> Any:
        """The answer to a job; fills spent. Raises WorkerDied, WorkerHung or DiskFull: this worker is gone then."""
        if not self.may_execute(job):
            raise WorkerError(f"a {self.source.role} worker that has executed one candidate was asked for another")
        self.code = code_of(job)
        by_cpu = sandbox.POLICIES[self.source.role].timed_by_cpu
        began, spent = sandbox.cpu_seconds(self.pid), spent or Spent()
        cpu_limit = began + timeout if by_cpu else None
        wall_s = timeout / _LEAST_PROCESSOR if by_cpu else timeout
        deadline = time.monotonic() + wall_s
        try:
            self.channel.send(job, wall_s)
            self._watch(deadline, cpu_limit, memory or sandbox.resident_limit(self.source.role), spent)
            answer = self.channel.receive(max(0.0, deadline - time.monotonic()))
            spent.seconds = sandbox.cpu_seconds(self.pid) - began
        except ChannelTimeout:
            self.kill()
            raise WorkerHung(f"no answer within {timeout:g} s") from None
        except ChannelClosed as error:
            self.kill()
            raise WorkerDied(f"its process ended ({error}){self.source.complaint()}") from None
        if not isinstance(answer, Last):
            return answer
        self.kill()  # which also removes its files
        if answer.full:
            place = os.path.dirname(self.source.cache)
            raise DiskFull(f"no disk space is left in {place} for the workers' files: free some, or set TMPDIR")
        return answer.answer

    def _watch(self, deadline: float, cpu_limit: float | None, limit: int | None, spent: Spent) -> None:
        """Waits until the answer begins or the deadline passes. Raises WorkerGrew; ChannelTimeout at the CPU limit."""
        took, woke = 0.0, time.monotonic()
        while not self.channel.is_readable(min(_MEMORY_CHECK_S, deadline - time.monotonic())):
            spent.memory = max(spent.memory, sandbox.resident_bytes(self.pid) if limit else 0)
            if limit is not None and spent.memory > limit:
                self.kill()
                raise WorkerGrew(f"it used more than {limit / 2**30:.1f} GiB of memory")
            if cpu_limit is not None and (now := sandbox.cpu_seconds(self.pid)) != took:
                took, woke = now, time.monotonic()
            if cpu_limit is not None and (took > cpu_limit or time.monotonic() - woke > _ASLEEP_S):
                raise ChannelTimeout()
            if time.monotonic() >= deadline:
                return

    def may_execute(self, job: Any) -> bool:
        """False if it has executed other code than the job's, and its role keeps candidates apart."""
        apart = sandbox.POLICIES[self.source.role].keeps_apart
        return not apart or not self.code or code_of(job) in ("", self.code)

    @property
    def is_idle(self) -> bool:
        """True if the worker is alive and silent: one that ended, or speaks unasked, gets no job."""
        return self.alive and not self.channel.is_readable()

    def kill(self) -> None:
        """Ends the worker and its process group, and removes its private folder."""
        self.alive = False
        self.handle.kill()
        self.handle.close()
        self.channel.close()
        if self.process is not None:
            self.process.wait()
        sandbox.discard(self.source.cache, self.source.role, self.pid)


def code_of(job: Any) -> str:
    """The source that a worker executes for a job; empty for none."""
    return getattr(job, "code", "")


class Trunk:
    """A process that has imported torch, and forks what else would import it for two seconds: nurseries and workers.

    It has run nobody's code and never touched the GPU. If somebody kills it, the next one that is asked for is another.
    """

    def __init__(self, cache: str, readable: tuple[str, ...]) -> None:
        self.cache, self.readable = cache, readable
        self.lock = threading.Lock()
        self.process: subprocess.Popen | None = None
        self.control: socket.socket | None = None

    def fork(self, mode: str, role: str) -> tuple[socket.socket, int]:
        """Our end of a socket to a process that serves the role or forks its workers, and the process's id."""
        with self.lock:
            if not _is_open(self.control):
                self.close()
                control, self.process = _spawn("torch", "trunk", self.cache, self.readable)
                self.control = _wait_until_ready(control)
            return _ask_to_fork(self.control, f"{mode} {role}")

    def close(self) -> None:
        _end(self.control, self.process)
        self.control = self.process = None


class WorkerSource:
    """Starts the workers of one role: a nursery forks them, or each is a process of its own; trunk: forks either.

    The run worker is forked too. Its nursery has imported torch and never touched the GPU, so a crash costs a new CUDA
    context and not seconds of imports. Only a process that initialised CUDA must not fork. A standby waits beside each
    nursery: it is forked from it, shares its memory, and takes its place if somebody kills it.
    """

    def __init__(
        self, role: str, cache: str, readable: tuple[str, ...] = (), *, fork: bool, trunk: Trunk | None = None
    ) -> None:
        self.role, self.cache, self.readable, self.fork, self.trunk = role, cache, readable, fork, trunk
        self.lock = threading.Lock()
        self.nursery: subprocess.Popen | None = None
        self.control: socket.socket | None = None
        self.standby: socket.socket | None = None
        self.nursery_pid: int | None = None
        self.standby_pid: int | None = None

    def start(self) -> Worker:
        """A ready worker. Raises WorkerError if none can be started."""
        try:
            if self.fork:
                return self._fork_worker()
            channel, process, _ = self._grow("serve")
            return Worker(Channel(channel), self, process)
        except (OSError, ChannelClosed, ChannelTimeout) as error:
            raise WorkerError(f"a {self.role} worker could not start: {error}{self.complaint()}") from None

    def close(self) -> None:
        self._end_nursery()
        if self.standby is not None:
            self.standby.close()

    def complaint(self) -> str:
        """The last line of the role's log, else of the trunk's, in brackets; empty if there is none.

        Of a C++ error, which ends with its frames, what it says.
        """
        for name in (self.role, "torch"):
            with contextlib.suppress(OSError):
                lines = Path(sandbox.log_path(self.cache, name)).read_text(errors="replace").strip().splitlines()
                if lines and lines[-1].lstrip().startswith("frame #"):
                    lines = [line.strip() for line in lines if line.lstrip().startswith("what():")] or lines
                if lines:
                    return f" ({lines[-1][:300]})"
        return ""

    def _fork_worker(self, spare: int = 2) -> Worker:
        """Forks from the nursery; if somebody killed it, from its standby, at last from a new nursery."""
        try:
            with self.lock:
                channel, _ = _ask_to_fork(self._ensure_nursery(), "fork")
            return Worker(Channel(channel), self)
        except (OSError, ChannelClosed):
            if not spare or not self._drop_ended_nursery():
                raise
        return self._fork_worker(spare - 1)

    def _ensure_nursery(self) -> socket.socket:
        """Keeps the nursery in use, or takes its standby, or spawns a new one; and gives it a standby."""
        ended = self.nursery is not None and self.nursery.poll() is not None
        if ended or not _is_open(self.control):
            self._end_nursery()
            self.control, self.standby, self.nursery_pid = self.standby, None, self.standby_pid
            if not _is_open(self.control):
                control, self.nursery, self.nursery_pid = self._grow("nursery")
                self.control = _wait_until_ready(control)
        if not _is_open(self.standby):
            standby, self.standby_pid = _ask_to_fork(self.control, "standby")
            self.standby = _wait_until_ready(standby)
        return self.control

    def _drop_ended_nursery(self) -> bool:
        """True if the nursery has ended; it is not used again."""
        with self.lock:
            if _is_open(self.control, wait_s=1.0):
                return False
            self._end_nursery()
            return True

    def _end_nursery(self) -> None:
        _end(self.control, self.nursery)
        self.control = self.nursery = None

    def _grow(self, mode: str) -> tuple[socket.socket, subprocess.Popen | None, int]:
        """Our end of a socket to a new process, the process if it is our child, and its id."""
        if self.trunk is not None:
            control, pid = self.trunk.fork(mode, self.role)
            return control, None, pid
        control, process = _spawn(self.role, mode, self.cache, self.readable)
        return control, process, process.pid


def _spawn(role: str, mode: str, cache: str, readable: tuple[str, ...]) -> tuple[socket.socket, subprocess.Popen]:
    """Our end of a socket to a fresh process, and the process."""
    ours, theirs = socket.socketpair()
    command = [*sandbox.run_module("kernelsearch.worker.child"), role, str(theirs.fileno()), mode, cache, *readable]
    with theirs, open(sandbox.log_path(cache, role), "ab") as log:
        process = subprocess.Popen(
            command,
            pass_fds=[theirs.fileno()],
            env=sandbox.scrub_environment(cache),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return ours, process


def _ask_to_fork(control: socket.socket, act: str) -> tuple[socket.socket, int]:
    """Our end of a socket to a process that the other end of control forks, and the process's id."""
    ours, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(control, [act.encode()], [theirs.fileno()])
        answer = control.recv(32)
    if not answer:
        raise OSError("the process that forks workers ended")
    return ours, int(answer)


def _end(control: socket.socket | None, process: subprocess.Popen | None) -> None:
    if control is not None:
        control.close()
    if process is not None:
        process.kill()
        process.wait()


def _wait_until_ready(nursery: socket.socket) -> socket.socket:
    """The socket of a nursery, once the nursery is ready."""
    nursery.settimeout(START_TIMEOUT_S)
    if nursery.recv(16) != b"ready":
        raise OSError("the nursery did not come up")
    return nursery


def _is_open(nursery: socket.socket | None, wait_s: float = 0.0) -> TypeGuard[socket.socket]:
    """True if the other end is still there: a nursery is silent, so anything to read is its end."""
    return nursery is not None and not select.select([nursery], [], [], wait_s)[0]
