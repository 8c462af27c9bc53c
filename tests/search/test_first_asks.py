"""The seed's first configs come from the static model's order, made beside the first trial; a run stays itself."""

import threading

import pytest

import simulated
from kernelsearch.core.types import config_key
from kernelsearch.record.store import Store
from kernelsearch.search import FirstAsks
from kernelsearch.trial.evaluator import Evaluator
from simulated_search import EXACT, LAND, make_search, story


class Ordering:
    """Orders by the landscape's own times, without those of BLOCK 2048: a model that knows all and refuses some."""

    def __init__(self):
        self.asked = []

    def __call__(self, kernel, configs):
        self.asked.append(list(configs))
        good = [c for c in configs if c["BLOCK"] != 2048]
        return sorted(((c, 2 * (50.0 * LAND.ratio(frozenset(), c),)) for c in good), key=lambda one: one[1])


def test_the_first_asks_are_the_foremost_of_those_that_were_drawn():
    ordering = Ordering()
    result = make_search(Store.open_in_memory(), "bayes", first=FirstAsks(ordering, 20, 6)).run()
    (drawn,) = ordering.asked
    keys = [config_key(c) for c in drawn]
    assert len(set(keys)) == 20 and config_key(simulated.CONFIG) not in keys
    assert [dict(t.config) for t in result.trials[1:7]] == [dict(c) for c, _ in ordering(None, drawn)[:6]]
    assert all(t.config["BLOCK"] != 2048 for t in result.trials[1:7])


def test_a_better_start_needs_fewer_trials():
    def needed(first):
        trials = make_search(Store.open_in_memory(), "bayes", trials=60, first=first).run().trials
        best = min(t.score for t in trials)
        return next(t.number for t in trials if t.score <= 1.02 * best)

    assert needed(FirstAsks(Ordering(), 100, 4)) <= 4 < needed(None)


@pytest.mark.parametrize("name", ["tpe", "autotune", "random_walk"])
def test_a_strategy_that_is_compared_with_is_spared_the_compiles(name):
    ordering = Ordering()
    make_search(Store.open_in_memory(), name, trials=10, first=FirstAsks(ordering, 20, 6)).run()
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
        return [(c, [1.0 + n, 1.0 + n]) for n, c in enumerate(configs)]

    make_search(Store.open_in_memory(), "bayes", Waiting(), 6, first=FirstAsks(ordering, 8, 4)).run()
    assert seen == [True]


class Killed(BaseException):
    """Ends a run as a kill would."""


@pytest.mark.parametrize("name", ["bayes", "evolve"])
def test_a_resumed_run_asks_for_the_same_first_configs(name):
    def search(store, resume=None):
        return make_search(store, name, first=FirstAsks(Ordering(), 20, 6), resume=resume)

    unbroken = story(search(Store.open_in_memory()).run().trials)
    for cut in (0, 3, 12):
        with_rows = Store.open_in_memory()

        def kill(trial, progress, cut=cut):
            if trial.number == cut:
                raise Killed

        with pytest.raises(Killed):
            search(with_rows).run(kill)
        assert story(search(with_rows, with_rows.load_run(1)).run().trials) == unbroken
