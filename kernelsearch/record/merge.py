"""Merges another database's rows into this one; doing it twice adds nothing.

Sources, tasks and candidates are identified by their content. Runs and calls of models are numbered by their file, so
they get numbers of this one, and so does what refers to them. A run is the same if its facts and the trials that both
files have are. Of a run that is already here, only the trials that it has gained since are added, and it is imported
then. What was measured here stays as it is; of two imported confirmations with the same key, the newer one does.
"""

from __future__ import annotations

import json
import math
import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelsearch.core.errors import StoreError
from kernelsearch.record import database_file
from kernelsearch.record.rows import candidate_digest
from kernelsearch.record.store import IMPORTED, Store

SAME_RUN = ("strategy", "task", "seed", "started", "proposer", "settings")
NUMBERED = {"run": "run", "call": "model_call"}
"""Columns that refer to the rows of a numbered table, and that table."""
_FINDING = ("confirmation", "detail")


@dataclass(frozen=True)
class MergeCounts:
    """The counts of a merge: new runs, and new rows by table."""

    runs: int
    rows: dict[str, int]

    @property
    def trials(self) -> int:
        return self.rows.get("trial", 0)


def merge(store: Store, other: str | Path, check: Callable[[str, str, bool], str] = lambda *_: "") -> MergeCounts:
    """Adds another database's rows in one transaction. Raises StoreError if it is not ours, damaged or newer.

    The other file is only read: a copy of it is brought up to this schema first. It is not trusted: check says why a
    kernel (its source, digest, and whether it is a task's own) is refused, and its runs and findings are marked.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "other.db"
        _copy_database(Path(other), copy)
        try:
            with Store.open(copy) as theirs:  # brings its schema up to date
                _refuse_forged(theirs, check)
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


def _refuse_forged(store: Store, check: Callable[[str, str, bool], str]) -> None:
    """Raises StoreError for kernels that check refuses, for times that no clock gives, and for rows of other forms."""
    with store.explain_contents():
        for run in store.load_runs():
            _ = store.load_trials(run.id), store.load_structures(run.id)
            if not run.name.isprintable():  # SQLite compares a text up to its first 0
                raise StoreError(f"{store.path} is not imported: run {run.id} has a name that nobody can read")
        _ = store.load_confirmations()
    for row in store.query(
        """SELECT source, digest, parent IS NULL AND digest IN (SELECT kernel FROM trial WHERE kind = 'seed') AS own
           FROM kernel"""
    ):
        if why := check(row["source"], row["digest"], bool(row["own"])):
            raise StoreError(f"{store.path} is not imported: {why}")
    for row in store.query("SELECT digest, task, kernel, config FROM candidate"):
        if row["digest"] != candidate_digest(row["task"], row["kernel"], json.loads(row["config"])):
            raise StoreError(f"{store.path} is not imported: candidate {row['digest'][:8]} has another digest")
    for table, column in (*_TIMES, *_TIMES_AS_JSON):
        for row in store.query(f"SELECT {column} AS given FROM {table} WHERE {column} IS NOT NULL"):
            values = list_times(json.loads(row["given"])) if (table, column) in _TIMES_AS_JSON else [row["given"]]
            if odd := [v for v in values if not (isinstance(v, (int, float)) and 0 < v < math.inf)]:
                raise StoreError(f"{store.path} is not imported: {table} has the time {odd[0]!r}")


_TIMES = [("trial", "score"), *((t, "time_us") for t in ("trial", "measurement", "confirmation", "baseline"))]
_TIMES += [("ceiling", "value"), ("confirmation", "vs_seed"), ("confirmation", "vs_fastest")]
_TIMES_AS_JSON = (("trial", "times"), ("confirmation", "detail"))


def list_times(value: Any) -> list[Any]:
    """Every `time_us` and `ratio` in a JSON value."""
    if isinstance(value, list):
        return [time for item in value for time in list_times(item)]
    named = value.items() if isinstance(value, dict) else ()
    own = [item for name, item in named if name in ("time_us", "ratio") and item is not None]
    return own + [time for _, item in named for time in list_times(item)]


def _merge_tables(connection: sqlite3.Connection) -> MergeCounts:
    new_runs = _merge_runs(connection)
    rows = {}
    for table in _tables(connection):
        if table in NUMBERED.values():
            rows[table] = _merge_numbered(connection, table)
            continue
        columns, conflict = _columns(connection, table), "IGNORE"
        values, source = _renumber(table, columns)
        if table == _FINDING[0]:  # a newer one replaces one that was imported
            key = " AND ".join(f"here.{name} = there.{name}" for name in _columns(connection, table, key=True))
            stays = "here.measured >= there.measured OR json_extract(here.detail, '$.imported') IS NULL"
            known = f'SELECT 1 FROM main."{table}" AS here WHERE {key} AND ({stays})'
            source, conflict = f"{source} WHERE NOT EXISTS ({known})", "REPLACE"
        into = f'main."{table}" ({", ".join(columns)})'
        query = f"INSERT OR {conflict} INTO {into} SELECT {', '.join(values)} FROM {source}"
        rows[table] = connection.execute(query).rowcount
    return MergeCounts(new_runs, rows)


def _merge_numbered(connection: sqlite3.Connection, table: str) -> int:
    """Adds the rows that differ in any column from those here; the temporary table `same_TABLE` maps their ids."""
    columns = [name for name in _columns(connection, table) if name != "id"]
    values, source = _renumber(table, columns)
    same = " AND ".join(f"here.{name} IS {value}" for name, value in zip(columns, values, strict=True))
    absent = f'NOT EXISTS (SELECT 1 FROM main."{table}" AS here WHERE {same})'
    added = connection.execute(
        f"""INSERT INTO main."{table}" ({", ".join(columns)})
            SELECT {", ".join(values)} FROM {source} WHERE {absent} ORDER BY there.id"""
    ).rowcount
    _map_ids(
        connection,
        table,
        f'SELECT there.id AS there, max(here.id) AS here FROM {source} JOIN main."{table}" '
        f"AS here ON {same} GROUP BY there.id",
    )
    return added


def _renumber(table: str, columns: Sequence[str]) -> tuple[list[str], str]:
    """The expressions of these columns with numbers of this file, and what to select them from."""
    values, source = [], f'other."{table}" AS there'
    for name in columns:
        marked = f"json_set(there.{name}, '$.imported', json('true'))" if (table, name) == _FINDING else f"there.{name}"
        values.append(f"same_{name}.here" if name in NUMBERED else marked)
        if name in NUMBERED:
            source += f" JOIN temp.same_{NUMBERED[name]} AS same_{name} ON same_{name}.there = there.{name}"
    return values, source


def _map_ids(connection: sqlite3.Connection, table: str, query: str) -> None:
    connection.execute(f"DROP TABLE IF EXISTS temp.same_{table}")
    connection.execute(f"CREATE TEMPORARY TABLE same_{table} AS {query}")


def _tables(connection: sqlite3.Connection) -> list[str]:
    """Our tables except `run`: those in both files, without search indexes, migrations and other tools' tables."""
    names = connection.execute(
        """SELECT m.name FROM main.sqlite_master AS m JOIN other.sqlite_master AS o ON o.name = m.name
           WHERE m.type = 'table' AND o.type = 'table' AND m.sql LIKE '%STRICT%' AND m.name <> 'run' ORDER BY m.rowid"""
    ).fetchall()
    return [name for (name,) in names if {*_columns(connection, name)} == {*_columns(connection, name, of="other")}]


def _columns(connection: sqlite3.Connection, table: str, key: bool = False, of: str = "main") -> list[str]:
    """The names of a table's columns, or only those of its primary key."""
    infos = connection.execute(f'PRAGMA {of}.table_info("{table}")')
    return [name for _, name, _, _, _, in_key in infos if in_key or not key]


def _merge_runs(connection: sqlite3.Connection) -> int:
    """Adds the other file's new runs and returns their count; the temporary table `same_run` maps its ids to ours."""
    names = ", ".join(name for name in _columns(connection, "run") if name != "id")
    marked = f"replace(name, '{IMPORTED}', '') || '{IMPORTED}', {names.partition(', ')[2]}"
    parted = """EXISTS (SELECT 1 FROM main.trial AS ours JOIN other.trial AS theirs ON theirs.number = ours.number
                        WHERE ours.run = here.id AND theirs.run = there.id
                        AND (theirs.candidate, theirs.finished) <> (ours.candidate, ours.finished))"""
    same = " AND ".join([*(f"here.{c} = there.{c}" for c in SAME_RUN), f"NOT {parted}"])
    new_runs = connection.execute(
        f"""INSERT INTO main.run ({names}) SELECT {marked} FROM other.run AS there
            WHERE NOT EXISTS (SELECT 1 FROM main.run AS here WHERE {same}) ORDER BY id"""
    ).rowcount
    _map_ids(
        connection,
        "run",
        f"""SELECT there.id AS there, max(here.id) AS here
             FROM other.run AS there JOIN main.run AS here ON {same} GROUP BY there.id""",
    )
    connection.execute(
        """UPDATE main.run SET (trials, extended, finished) = (
               SELECT max(main.run.trials, there.trials), max(main.run.extended, there.extended),
                      coalesce(main.run.finished, there.finished)
               FROM other.run AS there JOIN temp.same_run AS s ON s.there = there.id WHERE s.here = main.run.id)
           WHERE id IN (SELECT here FROM temp.same_run)"""
    )
    connection.execute(
        f"""UPDATE main.run SET name = name || '{IMPORTED}' WHERE name NOT LIKE '%{IMPORTED}' AND id IN (
               SELECT s.here FROM temp.same_run AS s JOIN other.trial AS gained ON gained.run = s.there
               WHERE NOT EXISTS (SELECT 1 FROM main.trial WHERE run = s.here AND number = gained.number))"""
    )
    return new_runs
