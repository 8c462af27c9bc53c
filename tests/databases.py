"""Databases for tests: with a finished simulated run, and written by a later version of the package."""

import sqlite3
from pathlib import Path

import simulated
from kernelsearch.record.store import Store
from simulated_search import EXACT, make_search


def search(store, name="evolve", trials=80, seed=0, failing=0.0, task=None, **told):
    """Runs a strategy on a simulated landscape and returns its result; failing is the share of failed
    evaluations; told are the callbacks of `Search.run`.
    """
    evaluator = simulated.Failing(EXACT, failing) if failing else EXACT
    return make_search(store, name, evaluator, trials, seed=seed, task=task).run(**told)


def make_older(path: Path, steps: int) -> None:
    """Makes a database look as one that came to its schema in steps, until 2026-11-26, and took so many of twelve."""
    with sqlite3.connect(path) as connection:
        kept = "AND name <> 'm012_hints_as_rules'" if steps == 12 else ""
        connection.execute(f"DELETE FROM _sqlite_migrations WHERE migration_set = 'kernelsearch' {kept}")
        rows = [(f"m{step:03}_step",) for step in range(1, min(steps, 11) + 1)]
        into = "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('kernelsearch', ?, '')"
        connection.executemany(into, rows)
        for table in ("lesson", "idea", "placement", "region_use", "region", "model"):  # of m015 and m016
            connection.execute(f"DROP TABLE {table}")
        connection.execute("PRAGMA writable_schema = ON")  # columns that came later have no comments in its texts
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, ' -- JSON:', ' -- json:')")
    connection.close()


def make_newer(path: Path, migration: str = "m999_from_the_future") -> None:
    """Writes the name of a migration that nobody knows into a database, which is made if necessary."""
    with Store.open(path) as store:
        row = {"migration_set": "kernelsearch", "name": migration, "applied_at": ""}
        store.database.table("_sqlite_migrations").insert(row)
