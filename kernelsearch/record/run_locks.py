"""Which process writes which run: a POSIX record lock on a byte of `FILE-lock` for each run of a database.

Any number of processes may write one database, each runs of its own. The system drops the locks of a process when it
ends, however it ends, and a forked child does not inherit them. SQLite's own locks are left to SQLite.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelsearch.core.errors import RunBusy
from kernelsearch.core.types import content_digest

SET_UP = 0
"""The byte for the right to create or migrate the file; a run's is its number."""

POLL_S = 0.02
_FLOCK = "hhqqi0q"
"""`struct flock` of 64-bit Linux: type, whence, start, length, process."""

_held: dict[Path, tuple[int, set[int]]] = {}
"""The open lock file and the bytes that this process holds: its own record locks do not conflict with each other, and
closing any descriptor of the file would drop them all."""
_turn = threading.RLock()


def number_study(name: str) -> int:
    """The byte of a study, far beyond all runs."""
    return (1 << 62) + int(content_digest(name)[:12], 16)


def claim(database: Path, number: int, what: str) -> None:
    """Takes the right to write a run. Raises RunBusy, which names `what`, and OSError."""
    path = _lock_path(database)
    with _turn:
        file, numbers = _held.get(path, (-1, set()))
        owner = os.getpid() if number in numbers else 0
        while not owner:
            opened = file if numbers else os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            if owner := _lock(opened, number):
                if not numbers:
                    os.close(opened)
            elif numbers or _is_current(path, opened):
                _held[path] = opened, numbers | {number}
                return
            else:
                os.close(opened)  # its last owner removed the file between our open and our lock
    raise RunBusy(f"{what} is being written by process {owner}: wait for it, or start another")


def release(database: Path, numbers: Iterable[int]) -> None:
    """Gives up the right to write these runs; the last process that does so removes the lock file."""
    path = _lock_path(database)
    with _turn:
        file, held = _held.get(path, (-1, set()))
        mine, rest = held & set(numbers), held - set(numbers)
        for number in mine:
            fcntl.lockf(file, fcntl.LOCK_UN, 1, number)
        if not mine:
            return
        _held[path] = file, rest
        if not rest:
            del _held[path]
            if not _lock(file, 0, length=0):
                path.unlink(missing_ok=True)
            os.close(file)


@contextmanager
def wait_for(database: Path, number: int, what: str, seconds: float) -> Iterator[None]:
    """A context with the right to write, for which it waits. Raises RunBusy after so many seconds, and OSError."""
    until = time.monotonic() + seconds
    while True:
        try:
            claim(database, number, what)
            break
        except RunBusy:
            if time.monotonic() >= until:
                raise
        time.sleep(POLL_S)
    try:
        yield
    finally:
        release(database, (number,))


def find_written(database: Path, numbers: Iterable[int]) -> set[int]:
    """Which of these runs some process writes now. It only asks: a lock would disturb a writer that begins."""
    path = _lock_path(database)
    with _turn:
        file, held = _held.get(path, (-1, set()))
        try:
            opened = file if held else os.open(path, os.O_RDONLY)
        except OSError:
            return set()
        try:
            return {n for n in numbers if n in held or _find_owner(opened, n)}
        finally:
            if not held:
                os.close(opened)


def _lock_path(database: Path) -> Path:
    return Path(f"{database.resolve()}-lock")


def _lock(file: int, number: int, length: int = 1) -> int:
    """Locks a byte (length 0: all from there on); 0, or the process that holds a part of it."""
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, number)
            return 0
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
        if owner := _find_owner(file, number, length):
            return owner  # else it has just given it up


def _find_owner(file: int, number: int, length: int = 1) -> int:
    """Another process that holds a byte; 0 for none."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, number, length, 0)
    kind, _, _, _, owner = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    return 0 if kind == fcntl.F_UNLCK else owner or -1


def _is_current(path: Path, file: int) -> bool:
    try:
        return os.stat(path).st_ino == os.fstat(file).st_ino
    except FileNotFoundError:
        return False
