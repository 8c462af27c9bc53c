"""A run that waits for its proposer holds up no run beside it, and is the same run as one that asks at once."""

import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import simulated
from kernelsearch.propose.contract import Proposer
from kernelsearch.record.store import Store
from simulated_search import LAND, make_search, story

TRIALS, LIMIT_S = 30, 120


class Thinking(Proposer):
    """Proposes what the landscape's proposer does, once it may."""

    def __init__(self, inner, may):
        self.inner, self.may, self.asked = inner, may, threading.Event()

    def propose(self, request, rng):
        self.asked.set()
        assert self.may.wait(LIMIT_S)
        return self.inner.propose(request, rng)


def search(store, seed, may=None):
    proposer = simulated.SimulatedProposer(LAND)
    proposer = Thinking(proposer, may) if may else proposer
    return make_search(store, "random_walk", trials=TRIALS, seed=seed, proposer=proposer)


def ended(steps):
    for awaited in steps:
        wait([awaited], LIMIT_S)


def test_another_run_ends_while_one_waits_for_its_proposer():
    may = threading.Event()
    with Store.open_in_memory() as store, ThreadPoolExecutor(4) as pool, ThreadPoolExecutor(1) as asking:
        waiting, other = search(store, 0, may), search(store, 1)
        steps = waiting.steps(pool, asking=asking)
        awaited = next(steps)
        while not waiting.proposer.asked.is_set():
            wait([awaited], 0.01, FIRST_COMPLETED)
            awaited = next(steps) if awaited.done() else awaited
        ended(other.steps(pool))
        assert len(other.result().trials) == TRIALS and not awaited.done()
        may.set()
        wait([awaited], LIMIT_S)
        ended(steps)
        alone = search(store, 0)
        ended(alone.steps(pool))
        assert story(waiting.result().trials) == story(alone.result().trials)
        assert len(alone.result().trials) == TRIALS
