"""One finished simulated run and its store."""

import pytest

import simulated
from kernelsearch.record.store import Store
from simulated_search import LAND, make_search


def run(store, name="evolve", trials=80, on_trial=lambda trial, progress: None, evaluator=None, task=None):
    evaluator = evaluator or simulated.Failing(simulated.Simulated(LAND), 0.2)
    return make_search(store, name, evaluator, trials, task=task).run(on_trial)


@pytest.fixture(scope="session")
def finished():
    store = Store.open_in_memory()
    return store, simulated.task(), run(store)


@pytest.fixture
def search():
    return run
