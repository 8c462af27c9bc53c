"""A search over a simulated landscape, without workers, and what its trials say."""

import simulated
from kernelsearch.core.types import config_key
from kernelsearch.record.rows import RunFacts
from kernelsearch.search import Search, Settings, make_start, strategies

LAND = simulated.Landscape(5)
EXACT = simulated.Simulated(LAND)


def make_search(
    store, name="evolve", evaluator=EXACT, trials=40, window=4, seed=0, resume=None, task=None, proposer=None,
    strategy=None, goes_on=False, first=None, **settings,
):  # fmt: skip
    """A search that is not begun. With goes_on it does not wait for `full` verdicts; first orders its first asks."""
    task = task or simulated.task()

    def make():
        return strategies.make(name, make_start(task, seed, trials))

    facts = RunFacts(name, "simulated", seed, window, trials, settings=first.as_facts() if first else {})
    settings = Settings(facts, first=first, anew=make if goes_on else None, **settings)
    proposer = proposer or simulated.SimulatedProposer(LAND)
    return Search(task, strategy or make(), proposer, evaluator, store, settings, resume)


def story(trials):
    """All that two runs that should be one must agree in."""
    return [
        (t.number, t.proposal, t.kernel, config_key(t.config), t.outcome.verdict.word, t.outcome.verdict.depth, t.score,
         t.edit, t.outcome.measured_by) for t in trials
    ]  # fmt: skip


def order_by_landscape(kernel, configs):
    """A static model that knows all."""
    return sorted(((c, 2 * (LAND.ratio(frozenset(), c),)) for c in configs), key=lambda one: one[1])
