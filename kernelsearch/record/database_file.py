"""Opens the database file, and has one sentence for each way in which that can fail."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from kernelsearch.core.errors import StoreError
from kernelsearch.record import run_locks
from kernelsearch.record.migrations import FIRST, migrations
from kernelsearch.record.sqlite_library import Database

WAIT_SECONDS = 5.0
"""How long a statement waits for another program's short transaction (another search, Datasette)."""

PATIENCE_SECONDS = 600.0
"""How long a run waits for a program that keeps the file locked (a backup, a shell with an open transaction)."""

T = TypeVar("T")


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


def open_for_writing(path: Path, say: Callable[[str], None] = lambda text: None) -> Database:
    """The database with its schema up to date, created if it does not exist; several processes may do so at once."""
    with explain_errors(path):
        _refuse_folder(path)
        if not path.absolute().parent.is_dir():
            raise StoreError(f"{path} cannot be made: its folder does not exist")
        with run_locks.wait_for(path, run_locks.SET_UP, str(path), PATIENCE_SECONDS):
            database = Database(_connection(path))
            _refuse_foreign(database, path)
            refuse_other_schemas(database, path)
            wait_while_locked(database.enable_wal, path, say)
            migrations.apply(database)
            wait_while_locked(lambda: database.conn.execute("BEGIN IMMEDIATE"), path, say)  # fails if it is read-only
            database.conn.execute("ROLLBACK")
    return database


def open_for_reading(path: Path) -> Database:
    """The database, read only; another process may write it meanwhile. An older schema is migrated first."""
    with explain_errors(path):
        _refuse_folder(path)
        if not path.is_file():
            raise StoreError(f"no database at {path}: `kernelsearch optimize` makes one, --db names another")
        database = Database(_read_only(path))
        refuse_other_schemas(database, path)
        known = migrations.applied(database)
        if known and not migrations.pending(database):
            return database
        database.close()
        if not known:  # another program's file, which reading must not change
            why = "`kernelsearch optimize` makes one, --db names another"
            raise StoreError(f"{path} is not a kernelsearch database: {why}")
        open_for_writing(path).close()
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


def refuse_other_schemas(database: Database, path: Path) -> None:
    """Raises StoreError for a schema of a later version of this package, and for one before `migrations.FIRST`."""
    ours, there = (
        {m.name for m in some} for some in (migrations.pending(Database(memory=True)), migrations.applied(database))
    )
    unknown = sorted(there - ours)
    if newer := [name for name in unknown if name > FIRST]:
        written = f"a newer kernelsearch (its schema has {newer[0]})"
        raise StoreError(f"{path} was written by {written}: upgrade, or name another --db")
    if unknown and FIRST not in there:
        written = f"an older kernelsearch (its schema ends at {unknown[-1]})"
        raise StoreError(
            f"{path} was written by {written}: open it once with a version of 2026-11-26, or name another --db"
        )


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
