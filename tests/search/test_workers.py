"""The same run on one worker and on eight: every shipped strategy, with trials that finish in another order."""

import pytest

import simulated
from kernelsearch.core.types import config_key
from kernelsearch.record.store import Store
from kernelsearch.search import FirstAsks, strategies
from kernelsearch.trial.reuse import ReuseTerms, ReusingEvaluator
from simulated_search import LAND, make_search

HARD = simulated.Failing(simulated.Noisy(simulated.Simulated(LAND), 0.03), 0.2)
WINDOW = 8


def ordered(kernel, configs):
    return sorted(((c, LAND.ratio(frozenset(), c)) for c in configs), key=lambda one: one[1])


def trials(name, evaluator, workers, count=60):
    task = simulated.task()
    terms = ReuseTerms(task.digest, tuple(s.key for s in task.shapes), "simulated", "interpreter", "simulated", {})
    with Store.open_in_memory() as store:
        known = ReusingEvaluator(evaluator, terms, store)
        first = FirstAsks(ordered, 16, 4)
        found = tuple(make_search(store, name, known, count, WINDOW, seed=3, workers=workers, first=first).run().trials)
    return [
        (
            t.number,
            t.proposal,
            t.kernel,
            config_key(t.config),
            t.outcome.verdict.word,
            t.score,
            t.edit,
            t.outcome.measured_by,
        )
        for t in found
    ]


@pytest.mark.parametrize("name", strategies.list_shipped())
def test_one_worker_and_eight_give_the_same_trials(name):
    alone = trials(name, HARD, 1)
    assert len(alone) == 60 and alone == trials(name, simulated.Slow(HARD, 0.002), WINDOW)
