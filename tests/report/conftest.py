"""One finished simulated run and its store."""

import pytest

import simulated
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search import Search, Settings, make_start, strategies

LAND = simulated.Landscape(5)


def run(store, name="evolve", trials=80, on_trial=lambda trial, progress: None, evaluator=None, task=None):
    task = task or simulated.task()
    evaluator = evaluator or simulated.Failing(simulated.Simulated(LAND), 0.2)
    settings = Settings(RunFacts(name, "simulated", 0, 4, trials))
    strategy = strategies.make(name, make_start(task, 0, trials))
    return Search(task, strategy, simulated.SimulatedProposer(LAND), evaluator, store, settings).run(on_trial)


@pytest.fixture(scope="session")
def finished():
    store = Store.open_in_memory()
    return store, simulated.task(), run(store)


@pytest.fixture
def search():
    return run
