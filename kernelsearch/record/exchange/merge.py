"""Another database's rows, merged in: nothing twice, however often it is done.

Sources, tasks and candidates are known by their content. A run is known by its name, task, seed and start: where it is
here already, only the trials that it has gained since are added. Of measurements, confirmations, baselines and
ceilings with the same key the newer one stays.
"""

from __future__ import annotations

import sqlite3
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kernelsearch.core.errors import StoreError
from kernelsearch.record import opening
from kernelsearch.record.store import Store

SAME_RUN = ("name", "task", "seed", "started")


@dataclass(frozen=True)
class Merged:
    """What came in: runs that were not here, and rows by table."""

    runs: int
    rows: dict[str, int]

    @property
    def trials(self) -> int:
        return self.rows.get("trial", 0)


def merge(store: Store, other: str | Path) -> Merged:
    """Adds another database's rows in one transaction. Raises StoreError when it is none of ours, damaged or newer.

    The other file is only read: a copy of it is brought up to this schema first.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "other.db"
        _copied(Path(other), copy)
        try:
            with Store.open(copy):
                pass  # brings its schema up to date
        except StoreError as error:
            raise StoreError(str(error).replace(str(copy), str(other))) from None
        connection = store.database.conn
        with opening.said_clearly(store.path):
            connection.execute("ATTACH DATABASE ? AS other", [str(copy)])
            try:
                with store.database.atomic():
                    connection.execute("PRAGMA defer_foreign_keys = ON")
                    return _merged(connection)
            finally:
                connection.execute("DETACH DATABASE other")


def _copied(source: Path, target: Path) -> None:
    Store.open(source, write=False).close() if not source.is_file() else None  # its sentence for a missing file
    with opening.said_clearly(source):
        reading, writing = sqlite3.connect(f"file:{source.absolute()}?mode=ro", uri=True), sqlite3.connect(target)
        try:
            reading.backup(writing)
        finally:
            reading.close()
            writing.close()


def _merged(connection: sqlite3.Connection) -> Merged:
    fresh = _runs(connection)
    rows = {}
    for table in _tables(connection):
        columns = [c[1] for c in connection.execute(f'PRAGMA main.table_info("{table}")')]
        before = connection.total_changes
        if "run" in columns:
            _copy_of_runs(connection, table, columns)
        elif "measured" in columns:
            _copy_newer(connection, table, columns)
        else:
            named = ", ".join(columns)
            connection.execute(f'INSERT OR IGNORE INTO main."{table}" ({named}) SELECT {named} FROM other."{table}"')
        rows[table] = connection.total_changes - before
    return Merged(fresh, rows)


def _tables(connection: sqlite3.Connection) -> list[str]:
    """Our own tables but for `run`: what both files have, without search indexes, migrations and other tools' tables."""
    found = connection.execute(
        """SELECT m.name FROM main.sqlite_master AS m JOIN other.sqlite_master AS o ON o.name = m.name AND o.sql = m.sql
           WHERE m.type = 'table' AND m.sql LIKE '%STRICT%' AND m.name <> 'run' ORDER BY m.rowid"""
    )
    return [name for (name,) in found]


def _runs(connection: sqlite3.Connection) -> int:
    """Gives every run of the other file its number here, in the temporary table `same_run`; how many are new."""
    columns = [c[1] for c in connection.execute("PRAGMA main.table_info(run)") if c[1] != "id"]
    named = ", ".join(columns)
    same = " AND ".join(f"here.{c} = there.{c}" for c in SAME_RUN)
    connection.execute("DROP TABLE IF EXISTS temp.same_run")
    fresh = connection.execute(
        f"""INSERT INTO main.run ({named}) SELECT {named} FROM other.run AS there
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
    return fresh


def _copy_of_runs(connection: sqlite3.Connection, table: str, columns: list[str]) -> None:
    named = ", ".join(columns)
    values = ", ".join("s.here" if c == "run" else f"t.{c}" for c in columns)
    connection.execute(
        f"""INSERT OR IGNORE INTO main."{table}" ({named}) SELECT {values}
            FROM other."{table}" AS t JOIN temp.same_run AS s ON s.there = t.run"""
    )


def _copy_newer(connection: sqlite3.Connection, table: str, columns: list[str]) -> None:
    key = [c[1] for c in connection.execute(f'PRAGMA main.table_info("{table}")') if c[5]]
    named = ", ".join(columns)
    same = " AND ".join(f"here.{c} = there.{c}" for c in key)
    connection.execute(
        f"""INSERT OR REPLACE INTO main."{table}" ({named}) SELECT {named} FROM other."{table}" AS there
            WHERE NOT EXISTS (SELECT 1 FROM main."{table}" AS here WHERE {same} AND here.measured >= there.measured)"""
    )
