"""Databases for tests: with a finished simulated run, and written by a later version of the package."""

from pathlib import Path

import simulated
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search import Search, Settings, make_start, strategies

LAND = simulated.Landscape(5)


def search(store, name="evolve", trials=80, seed=0, failing=0.0, on_trial=lambda *_: None, task=None):
    """Runs a strategy on a simulated landscape and returns its result; failing is the share of failed evaluations."""
    task = task or simulated.task()
    evaluator = simulated.Simulated(LAND)
    evaluator = simulated.Failing(evaluator, failing) if failing else evaluator
    settings = Settings(RunFacts(name, "simulated", seed, 4, trials))
    strategy = strategies.make(name, make_start(task, seed, trials))
    return Search(task, strategy, simulated.SimulatedProposer(LAND), evaluator, store, settings).run(on_trial)


def make_newer(path: Path, migration: str = "m999_from_the_future") -> None:
    """Writes the name of a migration that nobody knows into a database, which is made if necessary."""
    with Store.open(path) as store:
        row = {"migration_set": "kernelsearch", "name": migration, "applied_at": ""}
        store.database.table("_sqlite_migrations").insert(row)
