"""The same run on one worker and on eight: every strategy, with trials that finish in another order than asked."""

import pytest

import simulated
from kernelsearch.core.timed_shapes import place_shapes
from kernelsearch.record.store import Store
from kernelsearch.search import FirstAsks, strategies
from kernelsearch.trial.reuse import ReuseTerms, ReusingEvaluator
from simulated_search import EXACT, make_search, order_by_landscape, story

HARD = simulated.Failing(simulated.Noisy(EXACT, 0.03), 0.2)
WINDOW = 8


def trials(name, evaluator, workers):
    task, first = simulated.task(), FirstAsks(order_by_landscape, 16, 4)
    terms = ReuseTerms(task.digest, place_shapes(task.shapes), "simulated", "interpreter", "simulated", {})
    with Store.open_in_memory() as store:
        known = ReusingEvaluator(evaluator, terms, store)
        return story(make_search(store, name, known, 60, WINDOW, 3, first=first, workers=workers).run().trials)


@pytest.mark.parametrize("name", strategies.list_shipped())
def test_one_worker_and_eight_give_the_same_trials(name):
    alone = trials(name, HARD, 1)
    assert len(alone) == 60 and alone == trials(name, simulated.Slow(HARD, 0.002), WINDOW)
