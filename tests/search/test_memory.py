"""A long run keeps only those of its trials that later ones need; the rest is in the store."""

import gc
import weakref

from kernelsearch.record.store import Store
from simulated_search import make_search


def searched(store, trials, on_trial, resume=None):
    search = make_search(store, "random_walk", trials=trials, resume=resume, workers=1)
    return search, search.run(on_trial)


def test_trials_are_let_go_as_soon_as_they_are_told():
    living, most = [], []

    def told(trial, progress):
        living.append(weakref.ref(trial))
        if trial.number % 50 == 49:
            gc.collect()
            most.append(sum(ref() is not None for ref in living))

    with Store.open_in_memory() as store:
        search, result = searched(store, 400, told)
        needed = len({id(t) for t in search._told.by_kernel.values()}) + len(result.per_shape) + 1 + search.facts.window
        assert len(result.trials) == 400 and max(most) <= needed + 2 < 300
        assert [t.number for t in result.trials] == list(range(400))


def test_a_resumed_run_reads_its_trials_as_it_goes():
    with Store.open_in_memory() as store:
        first, result = searched(store, 300, lambda *_: None)
        told = [(t.number, t.kernel, t.score) for t in result.trials]
        _, again = searched(store, 300, lambda *_: None, store.load_run(first.run_row.id))
        assert [(t.number, t.kernel, t.score) for t in again.trials] == told
        assert store.count_trials(first.run_row.id) == 300
