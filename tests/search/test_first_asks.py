"""The seed's first configs in the static model's order, worked out beside the first trial; a run stays the same."""

import threading

import pytest

import simulated
from kernelsearch.core.types import config_key
from kernelsearch.record.store import Store
from kernelsearch.search import FirstAsks
from kernelsearch.trial.evaluator import Evaluator
from simulated_search import LAND, make_search

EXACT = simulated.Simulated(LAND)


class Ordering:
    """Orders by the landscape's own times, without those of BLOCK 2048: a model that knows all and refuses some."""

    def __init__(self):
        self.asked = []

    def __call__(self, kernel, configs):
        self.asked.append(list(configs))
        good = [c for c in configs if c["BLOCK"] != 2048]
        return sorted(((c, 50.0 * LAND.ratio(frozenset(), c)) for c in good), key=lambda one: one[1])


def search(store, name, first, trials=40, window=4, workers=None, resume=None):
    recorded = first.as_facts() if first else None
    return make_search(store, name, EXACT, trials, window, resume, recorded=recorded, workers=workers, first=first)


def story(trials):
    return [(t.number, t.kernel, config_key(t.config), t.score) for t in trials]


def test_the_first_asks_are_the_foremost_of_those_that_were_drawn():
    ordering = Ordering()
    result = search(Store.open_in_memory(), "bayes", FirstAsks(ordering, 20, 6)).run()
    (drawn,) = ordering.asked
    keys = [config_key(c) for c in drawn]
    assert len(set(keys)) == 20 and config_key(simulated.CONFIG) not in keys
    assert [dict(t.config) for t in result.trials[1:7]] == [dict(c) for c, _ in ordering(None, drawn)[:6]]
    assert all(t.config["BLOCK"] != 2048 for t in result.trials[1:7])


def test_a_better_start_needs_fewer_trials():
    def needed(first):
        trials = search(Store.open_in_memory(), "bayes", first, 60).run().trials
        best = min(t.score for t in trials)
        return next(t.number for t in trials if t.score <= 1.02 * best)

    assert needed(FirstAsks(Ordering(), 100, 4)) <= 4 < needed(None)


@pytest.mark.parametrize("name", ["tpe", "autotune", "random_walk"])
def test_a_strategy_that_is_compared_with_is_spared_the_compiles(name):
    ordering = Ordering()
    search(Store.open_in_memory(), name, FirstAsks(ordering, 20, 6), 10).run()
    assert ordering.asked == []


def test_the_order_is_worked_out_while_the_seed_is_evaluated():
    begun, seen = threading.Event(), []

    class Waiting(Evaluator):
        def evaluate(self, kernel, config, incumbent=None):
            if incumbent is None:
                seen.append(begun.wait(30))
            return EXACT.evaluate(kernel, config)

    def ordering(kernel, configs):
        begun.set()
        return [(c, 1.0 + n) for n, c in enumerate(configs)]

    asked = search(Store.open_in_memory(), "bayes", FirstAsks(ordering, 8, 4), 6)
    asked.evaluator = Waiting()
    asked.run()
    assert seen == [True]


@pytest.mark.parametrize("name", ["bayes", "evolve"])
def test_a_resumed_run_asks_for_the_same_first_configs(name):
    unbroken = story(search(Store.open_in_memory(), name, FirstAsks(Ordering(), 20, 6)).run().trials)
    for cut in (0, 3, 12):
        with_rows = Store.open_in_memory()

        class Killed(BaseException):
            pass

        def kill(trial, progress, cut=cut, killed=Killed):
            if trial.number == cut:
                raise killed

        with pytest.raises(Killed):
            search(with_rows, name, FirstAsks(Ordering(), 20, 6)).run(kill)
        resumed = search(with_rows, name, FirstAsks(Ordering(), 20, 6), resume=with_rows.load_run(1)).run()
        assert story(resumed.trials) == unbroken
