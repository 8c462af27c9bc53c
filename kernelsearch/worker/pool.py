"""The driver's side of the workers: starts them, asks them, and replaces the ones that die or hang."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from kernelsearch.errors import WorkerError
from kernelsearch.worker import sandbox
from kernelsearch.worker.channel import Channel, ChannelClosed, ChannelTimeout
from kernelsearch.worker.jobs import Failure, Last

START_TIMEOUT_S = 120.0
_LOOK_S = 0.1
"""How often a worker that runs candidate code is asked what memory it uses."""

_ENVIRONMENT = {"interpret": {"TRITON_INTERPRET": "1"}, "compile": {"CUDA_VISIBLE_DEVICES": ""}}


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

    def __init__(self, channel: Channel, source: Source, process: subprocess.Popen | None = None) -> None:
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


class Source:
    """Where workers of one role come from: a nursery that forks them, or a fresh process each.

    The run worker is forked too: its nursery has imported torch and never touched the GPU, so that a crash costs
    a new CUDA context and not the seconds of an import. Only what initialised CUDA must not fork. Beside each nursery
    waits a standby, forked from it, which shares its memory and takes its place when it is killed.
    """

    def __init__(self, role: str, cache: str, readable: tuple[str, ...] = (), *, fork: bool) -> None:
        self.role, self.cache, self.readable, self.fork = role, cache, readable, fork
        self.lock = threading.Lock()
        self.nursery: subprocess.Popen | None = None
        self.control: socket.socket | None = None
        self.standby: socket.socket | None = None
        self.nursery_pid: int | None = None
        self.standby_pid: int | None = None

    def start(self) -> Worker:
        """A ready worker. Raises WorkerError when it cannot be started."""
        try:
            return self._forked() if self.fork else self._spawned()
        except (OSError, ChannelClosed, ChannelTimeout) as error:
            raise WorkerError(f"a {self.role} worker could not start: {error}{self.complaint()}") from None

    def _forked(self) -> Worker:
        for last in (False, False, True):  # of this nursery, of its standby, of a new one: somebody may kill any of them
            try:
                return Worker(self._fork_one(), self)
            except (OSError, ChannelClosed):
                if last or not self._nursery_ended():
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _nursery_ended(self) -> bool:
        """Whether the nursery that forks is gone; then nobody asks it again."""
        with self.lock:
            if self.control is not None and _open_end(self.control, wait_s=1.0):
                return False
            self._forget()
            return True

    def _fork_one(self) -> Channel:
        ours, theirs = socket.socketpair()
        with self.lock, theirs:
            control = self._ready_nursery()
            self._asked_to(b"fork", control, theirs)
        return Channel(ours)

    def _asked_to(self, act: bytes, control: socket.socket, end: socket.socket) -> int:
        """The process that the nursery forked for this end of a socket."""
        socket.send_fds(control, [act], [end.fileno()])
        answer = control.recv(32)
        if not answer:
            raise OSError("the nursery closed")
        return int(answer)

    def _forget(self) -> None:
        if self.control is not None:
            self.control.close()
        if self.nursery is not None:
            self.nursery.kill()
            self.nursery.wait()
        self.control = self.nursery = None

    def _spawned(self) -> Worker:
        ours, theirs = socket.socketpair()
        with theirs:
            process = self._spawn(theirs, "serve")
        return Worker(Channel(ours), self, process)

    def close(self) -> None:
        self._forget()
        if self.standby is not None:
            self.standby.close()

    def _ready_nursery(self) -> socket.socket:
        """The control of a nursery that is there: the one in use, else the standby, else a new one; with a standby beside it."""
        if self.control is None or not _open_end(self.control) or (self.nursery is not None and self.nursery.poll() is not None):
            self._forget()
            self.control, self.standby, self.nursery_pid = self.standby, None, self.standby_pid
            if self.control is None or not _open_end(self.control):
                ours, theirs = socket.socketpair()
                self.nursery = self._spawn(theirs, "nursery")
                self.nursery_pid = self.nursery.pid
                self.control = _ready(ours, theirs)
        if self.standby is None or not _open_end(self.standby):
            ours, theirs = socket.socketpair()
            with theirs:
                self.standby_pid = self._asked_to(b"standby", self.control, theirs)
            self.standby = _ready(ours)
        return self.control

    def _spawn(self, sock: socket.socket, mode: str) -> subprocess.Popen:
        environment = sandbox.scrubbed_environment(_ENVIRONMENT.get(self.role, {}), self.cache)
        command = [sys.executable, "-m", "kernelsearch.worker.child", self.role, str(sock.fileno()), mode, self.cache]
        command += self.readable
        with open(self._log, "ab") as log:
            return subprocess.Popen(
                command, pass_fds=[sock.fileno()], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    @property
    def _log(self) -> str:
        return sandbox.log_path(self.cache, self.role)

    def complaint(self) -> str:
        with contextlib.suppress(OSError), open(self._log, errors="replace") as log:
            lines = log.read().strip().splitlines()
            return f" ({lines[-1][:300]})" if lines else ""
        return ""


def _ready(ours: socket.socket, theirs: socket.socket | None = None) -> socket.socket:
    """The control of a nursery once it says that it is ready."""
    if theirs is not None:
        theirs.close()
    ours.settimeout(START_TIMEOUT_S)
    if ours.recv(16) != b"ready":
        raise OSError("the nursery did not come up")
    return ours


def _open_end(sock: socket.socket, wait_s: float = 0.0) -> bool:
    """Whether the other end is still there: a nursery is silent, so that anything to read is its end."""
    return not select.select([sock], [], [], wait_s)[0]


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
        raise WorkerError(f"fresh {self.source.role} workers do not compute a known kernel rightly: is the GPU in order?")

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
        from kernelsearch import errors

        raise getattr(errors, answer.kind, WorkerError)(answer.message)
    return answer
