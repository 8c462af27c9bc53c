"""The neighbours of a new kernel's config are estimated while the search goes on; the best is what is tried first."""

import pytest

import simulated
from kernelsearch.core.errors import StrategyError
from kernelsearch.core.types import ProposalKind
from kernelsearch.record.rows import geometric_mean
from kernelsearch.record.store import Store
from kernelsearch.search import FirstAsks, strategies
from kernelsearch.search.loop import make_start
from kernelsearch.search.near_estimates import NEAR, find_promise
from simulated_search import EXACT, make_search, story


def know_all(kernel, configs):
    """A static model that is right."""
    times = [(c, tuple(t.time_us for t in EXACT.evaluate(kernel, c).measurement.times)) for c in configs]
    return sorted(times, key=lambda one: geometric_mean([*one[1]]))


FIRST = FirstAsks(know_all, 16, 4)


def told_in(run):
    """What the strategy was told to expect, and the run's trials."""
    strategy, told = strategies.make("evolve", make_start(simulated.task(), 0, 120)), {}
    expect = strategy.expect
    strategy.expect = lambda kernel, ratio: (told.setdefault(kernel, ratio), expect(kernel, ratio))
    return told, run(strategy)


def test_a_kernel_near_the_best_is_tuned_where_most_is_expected():
    told, trials = told_in(
        lambda strategy: make_search(
            Store.open_in_memory(), trials=120, first=FIRST, strategy=strategy, evaluator=EXACT
        ).run().trials
    )  # fmt: skip
    new = {t.kernel: t for t in reversed(trials) if t.proposal.kind is ProposalKind.REWRITE}
    best = {t.number: min(u.score for u in trials[: t.number + 1] if u.score) for t in new.values()}
    assert told and all(ratio < 1.0 for ratio in told.values())
    for kernel in told:
        assert NEAR[0] < new[kernel].score / best[new[kernel].number] <= NEAR[1]
    second = [t for kernel in told for t in [t for t in trials if t.kernel == kernel][1:2] if t.proposal.config is None]
    known = [t for t in second if t.number >= new[t.kernel].number + 2 * 4]  # of those that the window of 4 let it know
    times = [(t.outcome.measurement.by_shape, new[t.kernel].outcome.measurement.by_shape) for t in known]
    assert len(known) > 3 and all(any(now[shape] < then[shape] for shape in now) for now, then in times)


@pytest.mark.parametrize("cut", [10, 45])
def test_a_resumed_run_goes_on_as_the_unbroken_one(cut):
    whole = make_search(Store.open_in_memory(), trials=60, first=FIRST).run().trials
    store = Store.open_in_memory()
    part = make_search(store, trials=60, first=FIRST)
    part.run(stopping=lambda: part._told.count >= cut)
    resumed = make_search(store, trials=60, first=FIRST, resume=store.load_run(1)).run().trials
    assert story(resumed) == story(whole)


def test_nothing_is_expected_where_the_kernels_own_config_has_no_estimate():
    one, other = {"BLOCK": 1}, {"BLOCK": 2}
    assert find_promise(one, [(other, [3.0]), (one, [6.0])]) == (other, pytest.approx(0.5))
    assert find_promise(one, [(one, [3.0]), (other, [6.0])]) == (one, 1.0)
    assert find_promise(one, [(other, [3.0])]) is None and find_promise(one, []) is None


def test_a_config_that_gains_at_one_shape_promises_that():
    one, other, third = {"BLOCK": 1}, {"BLOCK": 2}, {"BLOCK": 4}
    estimates = [(third, [2.0, 99.0]), (other, [9.0, 1.0]), (one, [4.0, 4.0])]
    assert find_promise(one, estimates) == (other, pytest.approx(0.5))


OWN = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Params:
    pass

class Strategy:
    def __init__(self, params, start): pass
    def ask(self, number): return None
    def tell(self, trial): pass
    def expect(self, kernel, ratio): raise KeyError(kernel)
"""


def test_a_strategy_of_ones_own_is_told_too(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    strategy = strategies.make(str(tmp_path / "mine.py"), make_start(simulated.task()))
    with pytest.raises(StrategyError, match=r"mine.py fails in expect\(\): KeyError: 'abc'"):
        strategy.expect("abc", 0.5)
