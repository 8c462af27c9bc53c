"""A run that goes on while `full` verdicts are awaited is the run that waits for each, whatever they say."""

import dataclasses
import hashlib
import itertools
import random
import threading
import time

import pytest

import simulated
from kernelsearch.core.errors import StoreError
from kernelsearch.core.types import Outcome, Verdict, Word, config_key
from kernelsearch.record.store import Store
from kernelsearch.search import FirstAsks, pending, strategies
from simulated_search import EXACT, LAND, make_search, order_by_landscape, story

WINDOW = 4


class Proving:
    """Accepts at `screen`; `full` takes its time and rejects a share of the candidates."""

    def __init__(self, rejected=0.0, seconds=0.0):
        self.rejected, self.seconds, self.asked = rejected, seconds, []
        self.rng, self.lock = random.Random(0), threading.Lock()

    def evaluate(self, kernel, config, incumbent=None):
        return EXACT.evaluate(kernel, config, incumbent)

    def complete(self, kernel, config, outcome):
        with self.lock:
            self.asked.append((kernel.digest, config_key(config)))
            pause = self.rng.random() * self.seconds
        time.sleep(pause)
        number = int(hashlib.sha256(f"{kernel.digest}{config_key(config)}".encode()).hexdigest()[:8], 16)
        if number < self.rejected * 2**32:
            return Outcome(Verdict(Word.WRONG, "judge", "wrong where only full looks", "full"))
        return dataclasses.replace(outcome, verdict=dataclasses.replace(outcome.verdict, depth="full"))


def search(store, name, evaluator, goes_on, **settings):
    first = FirstAsks(order_by_landscape, 16, 4)
    return make_search(store, name, evaluator, 60, WINDOW, 3, goes_on=goes_on, first=first, **settings)


def told(name, evaluator, goes_on, **settings):
    """(What the rows say, what was reported, what the result calls the best)."""
    reported = []
    with Store.open_in_memory() as store:
        asked = search(store, name, evaluator, goes_on, **settings)
        result = asked.run(lambda trial, progress: reported.append((trial, progress)))
        rows = story(result.trials)
        structures = store.load_structures(result.run.id)
        assert [p.done for _, p in reported] == list(range(1, len(rows) + 1))
        assert set(structures) == {row[2] for row in rows}
        best = result.best
        assert best.outcome.verdict.depth == "full" or best.number == 0
        bests = [None if p.best is None else p.best.number for _, p in reported]
        per_shape = {k: t.number for k, t in result.per_shape.items()}
        return rows, story(t for t, _ in reported), bests, best.number, per_shape


@pytest.mark.slow
@pytest.mark.parametrize("rejected", [0.0, 0.4])
@pytest.mark.parametrize("name", strategies.list_shipped())
def test_going_on_gives_the_trials_of_waiting(name, rejected):
    waiting = told(name, Proving(rejected), goes_on=False)
    assert len(waiting[0]) == 60 and waiting[0] == waiting[1]
    assert told(name, Proving(rejected, seconds=0.02), goes_on=True) == waiting


def test_many_trials_are_told_while_a_proof_is_awaited(monkeypatch):
    goes_on, release = [], threading.Event()

    class Waits(Proving):
        def evaluate(self, kernel, config, incumbent=None):
            goes_on.append(1)
            if len(goes_on) == 40:
                release.set()
            return super().evaluate(kernel, config, incumbent)

        def complete(self, kernel, config, outcome):
            assert release.wait(60)  # until 40 candidates were evaluated: a run that waits here would never get there
            return super().complete(kernel, config, outcome)

    rows = told("random_walk", Waits(), goes_on=True)[0]
    assert len(rows) == 60 and len(goes_on) == 60


def test_no_more_than_so_many_are_held(monkeypatch):
    monkeypatch.setattr(pending.PendingTrials.settle_pending, "__defaults__", (5,))
    lengths = []
    settled = pending.PendingTrials.settle_pending

    def watched(self, **most):
        lengths.append(len(self.waiting))
        return settled(self, **most)

    monkeypatch.setattr(pending.PendingTrials, "settle_pending", watched)
    waiting = told("random_walk", Proving(0.4), goes_on=False)
    assert told("random_walk", Proving(0.4, seconds=0.05), goes_on=True) == waiting
    assert max(lengths) <= 6


def test_a_resumed_run_goes_on_in_the_same_way(tmp_path):
    whole = told("evolve", Proving(0.4), goes_on=False)[0]
    with Store.open(tmp_path / "held.db") as store:
        stopped = search(store, "evolve", Proving(0.4, seconds=0.02), True)
        seen = []

        class Enough(Exception):
            pass

        def stop(trial, progress):
            seen.append(trial)
            if len(seen) == 25:
                raise Enough

        with pytest.raises(Enough):
            stopped.run(stop)
        run = store.load_runs()[0]
        assert story(store.load_trials(run.id)) == whole[: store.count_trials(run.id)]
        result = search(store, "evolve", Proving(0.4, seconds=0.02), True, resume=run).run()
        assert story(result.trials) == whole


def test_a_strategy_that_does_not_repeat_itself_goes_on_too():
    """Its trials up to a rejected proof are told again as they were; asked anew, it would propose others."""
    walk, asked_before = strategies.load("random_walk"), itertools.count()

    class Moody(walk.Strategy):
        def ask(self, number):
            self.start = dataclasses.replace(self.start, seed=next(asked_before))
            return super().ask(number)

    class Doubting(Proving):
        """Rejects the first three new bests after the seed."""

        def complete(self, kernel, config, outcome):
            proved = super().complete(kernel, config, outcome)
            doubted = (kernel.digest, config) != (start.kernel, start.config) and len(self.asked) < 5
            return Outcome(Verdict(Word.WRONG, "judge", "doubted", "full")) if doubted else proved

    with Store.open_in_memory() as store:
        moody = make_search(store, "random_walk", Doubting(seconds=0.02), 60, WINDOW, 3)
        start = moody.strategy.start
        anew = dataclasses.replace(moody.settings, anew=lambda: Moody(walk.Params(), start))
        asked = type(moody)(simulated.task(), anew.anew(), moody.proposer, moody.evaluator, store, anew)
        rejected = [t for t in asked.run().trials if t.outcome.verdict.depth == "full" and not t.accepted]
        rows = store.load_trials(asked.run_row.id)
        assert [t.number for t in rows] == list(range(60)) and rejected
    with pytest.raises(StoreError, match="draws its own random numbers"), Store.open_in_memory() as store:
        make_search(store, "random_walk", trials=20, strategy=Moody(walk.Params(), start)).run()
        other = Moody(walk.Params(), start)
        make_search(store, "random_walk", trials=20, strategy=other, resume=store.load_run(1)).run()


def test_a_proposer_that_is_told_is_never_told_what_is_not_sure():
    class Listening(simulated.SimulatedProposer):
        def __init__(self):
            super().__init__(LAND)
            self.heard = []

        def tell(self, trial, kernel, parent):
            self.heard.append(trial)

    listening = Listening()
    with Store.open_in_memory() as store:
        result = search(store, "evolve", Proving(0.4, seconds=0.02), True, proposer=listening).run()
        assert story(listening.heard) == story(result.trials)


@pytest.mark.parametrize("seed", range(4))
def test_a_run_that_has_nothing_left_to_ask_for_a_moment_goes_on_in_the_same_way(seed, tmp_path):
    """Few configs: an ask gets nothing, all in flight is told, the ask is repeated; so when the run is told again."""
    task = dataclasses.replace(simulated.task(), space={"num_warps": (2, 4)})
    few = simulated.SimulatedProposer(dataclasses.replace(LAND, edits=6, invalid=0.0))
    given = dict(trials=40, window=8, seed=seed, task=task, proposer=few)

    def told(evaluator, goes_on, resume=None):
        return make_search(store, "evolve", evaluator, goes_on=goes_on, resume=resume, **given).run()

    with Store.open(tmp_path / "few.db") as store:
        waiting = told(Proving(0.4), goes_on=False)
        whole = story(waiting.trials)
        assert any(t.proposal.drained for t in waiting.trials)
        assert story(told(Proving(0.4, seconds=0.02), goes_on=True).trials) == whole
        assert story(told(Proving(0.4), goes_on=False, resume=waiting.run).trials) == whole
