"""Turns on a GPU: one bench times there while the others wait, in this process or in another one of this machine."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

from kernelsearch.core.slow_steps import Say, report_progress
from kernelsearch.measure.timing.nvml import find_bus_id

AGAIN_S = 60.0
"""Seconds from a message about waiting to the next one, which is about another wait."""
WAITING = "waiting for another process of kernelsearch, which times on this GPU"


class GpuTurn:
    """A lock that is held while something is timed on the first visible GPU; a context manager, to be used again.

    The threads of this process wait for each other, and its processes for those of every user of the machine: the lock
    is a file in the folder for temporary files, which Linux lets go when a process ends, however it ends. Processes
    that do not share that folder, containers for one, do not see each other. say prints that it waits, once a minute:
    where two searches share a GPU, each waits for the other at every step.
    """

    def __init__(self, say: Say | None = None, file: Path | None = None) -> None:
        self.say, self._said = say, -AGAIN_S
        self._turn, self._file = _lock_of(file or Path(tempfile.gettempdir()) / f"kernelsearch-{find_bus_id()}.lock")

    def __enter__(self) -> None:
        self._turn.acquire()
        try:
            with suppress(OSError):  # a file system without locks: only this process waits
                self._lock_file()
        except BaseException:
            self._turn.release()
            raise

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            with suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)
        self._turn.release()

    def _lock_file(self) -> None:
        if self._file is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            due = self.say is not None and time.monotonic() - self._said >= AGAIN_S
            with report_progress(self._tell if due else None, WAITING):
                fcntl.flock(self._file, fcntl.LOCK_EX)

    def _tell(self, text: str) -> None:
        if self.say is not None:
            self._said = time.monotonic()
            self.say(text)


@cache
def _lock_of(file: Path) -> tuple[threading.Lock, int | None]:
    """The lock of this process's threads, and the open file; None where it cannot be opened.

    A file in a shared folder that another user made must be opened without asking to create it (fs.protected_regular).
    """
    for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CREAT):
        with suppress(OSError):
            return threading.Lock(), os.open(file, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    return threading.Lock(), None
