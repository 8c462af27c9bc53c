"""One finished simulated run and its store."""

from functools import partial

import pytest

import databases
import simulated
from kernelsearch.record.store import Store


@pytest.fixture(scope="session")
def finished():
    store = Store.open_in_memory()
    return store, simulated.task(), databases.search(store, failing=0.2)


@pytest.fixture
def search():
    return partial(databases.search, failing=0.2)
