"""Opens the database file: one writer at a time, and one sentence for each way in which that can fail.

The writer holds a POSIX record lock on `FILE-lock`. The system drops it when the process ends, however it ends, and a
forked child does not inherit it. SQLite's own locks are left to SQLite.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from sqlite_utils import Database

from kernelsearch.core.errors import DatabaseBusy, StoreError
from kernelsearch.record.migrations import migrations

WAIT_SECONDS = 5.0
"""How long a statement waits for another program's short transaction (Datasette, the sqlite3 shell)."""

PATIENCE_SECONDS = 600.0
"""How long a run waits for a program that keeps the file locked (a backup, a shell with an open transaction)."""

T = TypeVar("T")

_own_locks: set[str] = set()
"""Lock files of this process: a record lock does not conflict with itself."""


class DatabaseLock:
    """The right to write one database file, from construction to `release`. Raises StoreError."""

    def __init__(self, database: Path) -> None:
        self.path = Path(f"{database.resolve()}-lock")
        if str(self.path) in _own_locks:
            raise StoreError(f"{database} is already open for writing in this process")
        with explain_errors(database):
            self._file = self._acquire(database)
        _own_locks.add(str(self.path))

    def _acquire(self, database: Path) -> int:
        while True:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                owner = os.read(file, 32).decode("ascii", "replace").strip()
                os.close(file)
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
                who = f"process {owner}" if owner else "another process"
                raise DatabaseBusy(f"{database} is being written by {who}: wait for it, or name another --db") from None
            if self._is_current(file):
                os.ftruncate(file, 0)
                os.write(file, f"{os.getpid()}\n".encode())
                return file
            os.close(file)  # its last owner removed the file between our open and our lock

    def _is_current(self, file: int) -> bool:
        try:
            return os.stat(self.path).st_ino == os.fstat(file).st_ino
        except FileNotFoundError:
            return False

    def release(self) -> None:
        if str(self.path) in _own_locks:
            _own_locks.discard(str(self.path))
            self.path.unlink(missing_ok=True)
            os.close(self._file)


def find_writing_since(database: Path | str) -> float | None:
    """The time at which the process that writes a database opened it; None where no process does.

    It only asks: taking the lock would disturb a writer that begins, and closing its file would drop our own.
    """
    lock = Path(f"{Path(database).resolve()}-lock")
    try:
        if str(lock) not in _own_locks:
            with open(lock, "rb") as file:
                asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                if struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))[0] == fcntl.F_UNLCK:
                    return None
        return lock.stat().st_mtime
    except FileNotFoundError:
        return None


_FLOCK = "hhqqi0q"
"""`struct flock` of 64-bit Linux: type, whence, start, length, process."""


@contextmanager
def explain_errors(path: Path | str) -> Iterator[None]:
    """Turns errors of SQLite and of the system about a file into a StoreError that says what to do."""
    try:
        yield
    except (sqlite3.DatabaseError, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        matches = (text for words, text in _SENTENCES if any(word in reason.lower() for word in words))
        raise StoreError(f"{path} {next(matches, f'cannot be used: {reason}')}") from error


_LOCKED = ("is locked", "is busy")
_DISK_FULL = ("disk is full", "no space left", "disk quota", "disk i/o error")
_SENTENCES = (
    (_DISK_FULL, "cannot grow: no disk space is left, or the disk fails; all stored rows are safe"),
    (("readonly", "read-only", "permission denied"), "cannot be written: the file or its folder is read-only"),
    (("not a database", "malformed"), "is not a SQLite database, or it is damaged: name another --db"),
    (_LOCKED, "is locked by another program: close it, or name another --db"),
    (("unable to open", "no such file"), "cannot be opened: its folder does not exist, or it is a folder itself"),
)


def wait_while_locked(act: Callable[[], T], path: Path | str, say: Callable[[str], None]) -> T:
    """The result of a statement, which is tried again for minutes while another program keeps the file locked."""
    begun, told = time.monotonic(), False
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if not any(word in str(error) for word in _LOCKED) or time.monotonic() - begun > PATIENCE_SECONDS:
                raise
        if not told:
            say(f"{path} is locked by another program: waiting for it up to {PATIENCE_SECONDS / 60:g} minutes")
            told = True


def open_for_writing(path: Path) -> tuple[Database, DatabaseLock]:
    """The database with its schema up to date, created if it does not exist, and the lock on it."""
    with explain_errors(path):
        _refuse_folder(path)
        if not path.absolute().parent.is_dir():
            raise StoreError(f"{path} cannot be made: its folder does not exist")
        lock = DatabaseLock(path)
        try:
            database = Database(_connection(path))
            _refuse_foreign(database, path)
            refuse_newer(database, path)
            database.enable_wal()
            migrations.apply(database)
            database.execute("BEGIN IMMEDIATE").close()  # a read-only file fails here, not after a trial
            database.execute("ROLLBACK").close()
        except BaseException:
            lock.release()
            raise
    return database, lock


def open_for_reading(path: Path) -> Database:
    """The database, read only; another process may write it meanwhile. An older schema is migrated first."""
    with explain_errors(path):
        _refuse_folder(path)
        if not path.is_file():
            raise StoreError(f"no database at {path}: `kernelsearch optimize` makes one, --db names another")
        database = Database(_read_only(path))
        refuse_newer(database, path)
        known = migrations.applied(database)
        if known and not migrations.pending(database):
            return database
        database.close()
        if not known:  # another program's file, which reading must not change
            why = "`kernelsearch optimize` makes one, --db names another"
            raise StoreError(f"{path} is not a kernelsearch database: {why}")
        upgraded, lock = open_for_writing(path)
        upgraded.close()
        lock.release()
        return Database(_read_only(path))


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise StoreError(f"{path} is a folder: name a file for the database")


def _refuse_foreign(database: Database, path: Path) -> None:
    """Raises StoreError for a file that has tables and none of them is ours."""
    tables = set(database.table_names())
    begun = tables <= {migrations.migrations_table} and not any(database.table(name).count for name in tables)
    if not begun and not migrations.applied(database):
        example = min(tables - {migrations.migrations_table}, default=migrations.migrations_table)
        raise StoreError(f"{path} is another program's database (it has a table {example}): name another --db")


def open_in_memory() -> Database:
    """A new database in memory, for tests and for runs that nobody keeps."""
    database = Database(_connection(":memory:"))
    migrations.apply(database)
    return database


def refuse_newer(database: Database, path: Path) -> None:
    """Raises StoreError if a later version of this package has changed the schema."""
    ours = {m.name for m in migrations.pending(Database(memory=True))}
    unknown = sorted(m.name for m in migrations.applied(database) if m.name not in ours)
    if unknown:
        newer = f"a newer kernelsearch (its schema has {unknown[0]})"
        raise StoreError(f"{path} was written by {newer}: upgrade, or name another --db")


def _connection(path: Path | str) -> sqlite3.Connection:
    connection = sqlite3.connect(str(path), timeout=WAIT_SECONDS, check_same_thread=False)  # the store takes turns
    connection.execute("PRAGMA foreign_keys = ON")
    # With WAL, NORMAL loses nothing when the process is killed, and at most the last rows when the power fails.
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def read_only_uri(path: Path) -> str:
    """The name under which `sqlite3.connect` opens a file for reading only, with `uri=True`."""
    return f"file:{quote(os.fsencode(path.absolute()))}?mode=ro"


def _read_only(path: Path) -> sqlite3.Connection:
    name = read_only_uri(path)
    connection = sqlite3.connect(name, uri=True, timeout=WAIT_SECONDS)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # A WAL database in a folder without write permission can be read as immutable if no WAL is pending.
        connection.close()
        if Path(f"{path}-wal").exists():
            raise
        connection = sqlite3.connect(f"{name}&immutable=1", uri=True)
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    return connection
