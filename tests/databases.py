"""Databases for tests: with a finished simulated run, and written by a later version of the package."""

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


def make_newer(path: Path, migration: str = "m999_from_the_future") -> None:
    """Writes the name of a migration that nobody knows into a database, which is made if necessary."""
    with Store.open(path) as store:
        row = {"migration_set": "kernelsearch", "name": migration, "applied_at": ""}
        store.database.table("_sqlite_migrations").insert(row)
