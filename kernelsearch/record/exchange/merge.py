"""Merging another database's rows into this one; doing it twice adds nothing.

Sources, tasks and candidates are identified by their content, and a run by its name, task, seed and start. Of a run
that is already here, only the trials that it has gained since are added. Of measurements, confirmations, baselines and
ceilings with the same key, the newer one stays.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from kernelsearch.core.errors import StoreError
from kernelsearch.record import database_file
from kernelsearch.record.store import Store

SAME_RUN = ("name", "task", "seed", "started")


@dataclass(frozen=True)
class MergeCounts:
    """The counts of a merge: new runs, and new rows by table."""

    runs: int
    rows: dict[str, int]

    @property
    def trials(self) -> int:
        return self.rows.get("trial", 0)


def merge(store: Store, other: str | Path) -> MergeCounts:
    """Adds another database's rows in one transaction. Raises StoreError if it is not ours, damaged or newer.

    The other file is only read: a copy of it is brought up to this schema first.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "other.db"
        _copy_database(Path(other), copy)
        try:
            with Store.open(copy):
                pass  # brings its schema up to date
        except StoreError as error:
            raise StoreError(str(error).replace(str(copy), str(other))) from None
        connection = store.database.conn
        with database_file.explain_errors(store.path):
            connection.execute("ATTACH DATABASE ? AS other", [str(copy)])
            try:
                with store.database.atomic():
                    connection.execute("PRAGMA defer_foreign_keys = ON")
                    return _merge_tables(connection)
            finally:
                connection.execute("DETACH DATABASE other")


def _copy_database(source: Path, target: Path) -> None:
    if not source.is_file():
        Store.open(source, write=False).close()  # raises StoreError with the sentence for a missing file
    with database_file.explain_errors(source):
        reading = sqlite3.connect(database_file.read_only_uri(source), uri=True)
        with closing(reading), closing(sqlite3.connect(target)) as writing:
            reading.backup(writing)


def _merge_tables(connection: sqlite3.Connection) -> MergeCounts:
    new_runs = _merge_runs(connection)
    rows = {}
    for table in _tables(connection):
        columns = _columns(connection, table)
        values, source, conflict = columns, f'other."{table}" AS there', "IGNORE"
        if "run" in columns:
            values = ["same.here" if name == "run" else f"there.{name}" for name in columns]
            source += " JOIN temp.same_run AS same ON same.there = there.run"
        elif "measured" in columns:  # the newer one stays
            key = " AND ".join(f"here.{name} = there.{name}" for name in _columns(connection, table, key=True))
            newer = f'SELECT 1 FROM main."{table}" AS here WHERE {key} AND here.measured >= there.measured'
            source, conflict = f"{source} WHERE NOT EXISTS ({newer})", "REPLACE"
        into = f'main."{table}" ({", ".join(columns)})'
        query = f"INSERT OR {conflict} INTO {into} SELECT {', '.join(values)} FROM {source}"
        rows[table] = connection.execute(query).rowcount
    return MergeCounts(new_runs, rows)


def _tables(connection: sqlite3.Connection) -> list[str]:
    """Our tables except `run`: those in both files, without search indexes, migrations and other tools' tables."""
    names = connection.execute(
        """SELECT m.name FROM main.sqlite_master AS m JOIN other.sqlite_master AS o ON o.name = m.name AND o.sql = m.sql
           WHERE m.type = 'table' AND m.sql LIKE '%STRICT%' AND m.name <> 'run' ORDER BY m.rowid"""
    )
    return [name for (name,) in names]


def _columns(connection: sqlite3.Connection, table: str, key: bool = False) -> list[str]:
    """The names of a table's columns, or only those of its primary key."""
    infos = connection.execute(f'PRAGMA main.table_info("{table}")')
    return [name for _, name, _, _, _, in_key in infos if in_key or not key]


def _merge_runs(connection: sqlite3.Connection) -> int:
    """Adds the other file's new runs and returns their count; the temporary table `same_run` maps its ids to ours."""
    names = ", ".join(name for name in _columns(connection, "run") if name != "id")
    same = " AND ".join(f"here.{c} = there.{c}" for c in SAME_RUN)
    connection.execute("DROP TABLE IF EXISTS temp.same_run")
    new_runs = connection.execute(
        f"""INSERT INTO main.run ({names}) SELECT {names} FROM other.run AS there
            WHERE NOT EXISTS (SELECT 1 FROM main.run AS here WHERE {same}) ORDER BY id"""
    ).rowcount
    connection.execute(
        f"""CREATE TEMPORARY TABLE same_run AS SELECT there.id AS there, max(here.id) AS here
            FROM other.run AS there JOIN main.run AS here ON {same} GROUP BY there.id"""
    )
    connection.execute(
        """UPDATE main.run SET (trials, finished) = (
               SELECT max(main.run.trials, there.trials), coalesce(main.run.finished, there.finished)
               FROM other.run AS there JOIN temp.same_run AS s ON s.there = there.id WHERE s.here = main.run.id)
           WHERE id IN (SELECT here FROM temp.same_run)"""
    )
    return new_runs
