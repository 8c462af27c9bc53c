"""Where workers come from: a nursery that forks them, with a standby beside it, or a fresh process each."""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import sys
import threading

from kernelsearch.core.errors import WorkerError
from kernelsearch.worker.isolation import sandbox
from kernelsearch.worker.messages.channel import Channel, ChannelClosed, ChannelTimeout
from kernelsearch.worker.processes.handle import START_TIMEOUT_S, Worker

_ENVIRONMENT = {"interpret": {"TRITON_INTERPRET": "1"}, "compile": {"CUDA_VISIBLE_DEVICES": ""}}


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
        for last in (
            False,
            False,
            True,
        ):  # of this nursery, of its standby, of a new one: somebody may kill any of them
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
        if (
            self.control is None
            or not _open_end(self.control)
            or (self.nursery is not None and self.nursery.poll() is not None)
        ):
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
                command,
                pass_fds=[sock.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

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
