"""A search over a simulated landscape, as the tests of searches, strategies, records and reports set it up."""

import simulated
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search import Search, Settings, make_start, strategies

LAND = simulated.Landscape(5)


def make_search(
    store,
    name="evolve",
    evaluator=None,
    trials=40,
    window=4,
    resume=None,
    task=None,
    proposer=None,
    strategy=None,
    seed=0,
    land=LAND,
    recorded=None,
    **settings,
):
    """A search that has not run yet; `recorded` are its settings in the database, `settings` those of the loop."""
    task = task or simulated.task()
    strategy = strategy or strategies.make(name, make_start(task, seed, trials))
    facts = RunFacts(name, "simulated", seed, window, trials, settings=recorded or {})
    proposer, evaluator = proposer or simulated.SimulatedProposer(land), evaluator or simulated.Simulated(land)
    return Search(task, strategy, proposer, evaluator, store, Settings(facts, **settings), resume)


def record_search(path, **how):
    """A database with one finished search."""
    with Store.open(path) as store:
        make_search(store, **how).run()
    return path
