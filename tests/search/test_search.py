"""The loop: the same run on any number of workers, in ask order, nothing twice, and what happens when things end."""

import dataclasses
import random
import signal
import threading
import time

import pytest

import simulated
from kernelsearch.core.errors import SpaceError, StoreError, StrategyError, TaskError
from kernelsearch.core.types import (
    Evidence,
    Measurement,
    Outcome,
    Proposal,
    ProposalKind,
    ShapeTime,
    Verdict,
    Word,
    config_key,
)
from kernelsearch.propose.contract import Proposer, Rewrite
from kernelsearch.record.store import Store
from kernelsearch.search import make_start, strategies
from kernelsearch.search.contract import Strategy
from kernelsearch.search.runs import begin_run
from kernelsearch.trial.evaluator import Evaluator
from simulated_search import EXACT, LAND, story
from simulated_search import make_search as search


class Counting(Evaluator):
    """Counts what an evaluator is asked."""

    def __init__(self, inner):
        self.inner, self.asked, self.lock = inner, [], threading.Lock()

    def evaluate(self, kernel, config, incumbent=None):
        with self.lock:
            self.asked.append((kernel.digest, config_key(config)))
        return self.inner.evaluate(kernel, config, incumbent)


class Recording(Strategy):
    """Retunes the seed and remembers how many trials it had been told at each ask."""

    def __init__(self, task=None):
        self.start, self.told, self.at_ask = make_start(task or simulated.task()), [], {}

    def ask(self, number):
        self.at_ask[number] = list(self.told)
        return Proposal(ProposalKind.RETUNE, (self.start.kernel,), sampler="random")

    def tell(self, trial):
        self.told.append(trial.number)


# ---------------------------------------------------------------- order


@pytest.mark.parametrize("window", [1, 3, 8])
def test_an_ask_has_seen_exactly_the_trials_up_to_n_minus_window_and_the_seed(window):
    recording = Recording()
    search(
        Store.open_in_memory(), strategy=recording, window=window, trials=20, evaluator=simulated.Slow(EXACT, 0.003)
    ).run()
    for number, told in recording.at_ask.items():
        assert told == list(range(max(1, number - window + 1)))
    assert recording.told == list(range(20))


@pytest.mark.parametrize("name", ["evolve", "tpe"])
def test_the_same_run_on_any_number_of_workers(name):
    slow = simulated.Slow(simulated.Failing(simulated.Noisy(EXACT, 0.03), 0.2), 0.004)
    runs = [story(search(Store.open_in_memory(), name, slow, window=6, workers=w).run().trials) for w in (1, 2, 6)]
    assert runs[0] == runs[1] == runs[2]


def test_up_to_a_window_of_candidates_is_in_flight():
    running, most, lock = [0], [0], threading.Lock()

    class Watching(Evaluator):
        def evaluate(self, kernel, config, incumbent=None):
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            time.sleep(0.03)
            with lock:
                running[0] -= 1
            return EXACT.evaluate(kernel, config)

    search(Store.open_in_memory(), "random_walk", Watching(), window=5, trials=25).run()
    assert most[0] == 5


def test_every_trial_is_told_and_stored_in_order_and_announced():
    store, announced = Store.open_in_memory(), []
    result = search(store).run(lambda trial, progress: announced.append((trial, progress)))
    assert [t for t, _ in announced] == list(result.trials) == store.load_trials(result.run.id)
    assert [p.done for _, p in announced] == list(range(1, 41))
    last = announced[-1][1]
    assert last.total == 40 and last.best == result.best and sum(last.counts.values()) == 40
    assert store.load_run(result.run.id).finished


# ---------------------------------------------------------------- candidates


def test_nothing_is_evaluated_twice_and_trial_zero_is_the_seed_with_its_own_config():
    counting = Counting(simulated.Failing(EXACT, 0.2))
    result = search(Store.open_in_memory(), evaluator=counting, trials=80).run()
    assert len(counting.asked) == len(set(counting.asked)) == 80
    first = result.trials[0]
    assert first.proposal == Proposal(ProposalKind.SEED) and first.score == 1.0
    assert first.config == simulated.CONFIG


def test_a_rewrite_starts_at_its_parents_best_config():
    result = search(Store.open_in_memory(), trials=80, window=1).run()
    best = {}
    for trial in result.trials:
        known = trial.kernel in best
        if not known and trial.proposal.kind is ProposalKind.REWRITE:
            assert trial.config == best[trial.proposal.parents[0]][1]
        if not known or (trial.score or 9) < best[trial.kernel][0]:
            best[trial.kernel] = (trial.score or 9, trial.config)


def test_a_kernels_own_space_and_config_come_before_its_parents():
    class Once(Proposer):
        def propose(self, request, rng):
            child = request.parent.with_changes(
                constants=("tile = tl.constexpr(1)",), space={"ROWS": (16, 32)}, config={"ROWS": 16}
            )
            return None if child.digest in request.seen else Rewrite(child, "widen", "more rows")

    result = search(Store.open_in_memory(), "evolve", proposer=Once(), trials=60, window=2).run()
    children = [t for t in result.trials if t.edit == "widen"]
    told = [t for t in result.trials[: max(1, children[0].number - 1)] if t.accepted]
    assert children[0].config == {**min(told, key=lambda t: t.score).config, "ROWS": 16}
    assert {t.config["ROWS"] for t in children} == {16, 32} and len({t.config["BLOCK"] for t in children}) > 1


def test_without_rewrites_every_proposal_becomes_a_retune():
    class Nothing(Proposer):
        def propose(self, request, rng):
            return None

    result = search(Store.open_in_memory(), "best_of_n", proposer=Nothing(), trials=30).run()
    assert len(result.trials) == 30 and {t.kernel for t in result.trials} == {result.trials[0].kernel}


def test_a_used_up_space_ends_the_run_early_or_becomes_a_rewrite():
    small = dataclasses.replace(simulated.task(), space={"num_warps": (2, 4)})
    result = search(Store.open_in_memory(), "tpe", task=small, trials=30).run()
    assert len(result.trials) == 2 and result.used_up
    result = search(Store.open_in_memory(), "evolve", task=small, trials=30).run()
    assert len(result.trials) == 30 and not result.used_up


def test_the_proposer_is_given_hints_weights_and_what_was_seen():
    asked = []

    class Watching(Proposer):
        inner = simulated.SimulatedProposer(LAND)

        def propose(self, request, rng):
            asked.append(request)
            return self.inner.propose(request, rng)

    result = search(Store.open_in_memory(), proposer=Watching(), trials=60).run()
    assert result.trials[0].kernel in asked[0].seen
    assert any(r.weights for r in asked)
    assert len({t.kernel for t in result.trials}) <= len(asked) + 1


def test_an_unknown_parent_is_the_strategys_fault():
    class Wrong(Recording):
        def ask(self, number):
            return Proposal(ProposalKind.REWRITE, ("nobody",))

    with pytest.raises(StrategyError, match="nobody"):
        search(Store.open_in_memory(), strategy=Wrong()).run()


# ---------------------------------------------------------------- scores


class Fixed(Evaluator):
    """Times by BLOCK: (time of timed:0 or None, time of timed:1, abandoned)."""

    def __init__(self, table):
        self.table = table

    def evaluate(self, kernel, config, incumbent=None):
        small, large, abandoned = self.table[config["BLOCK"]]
        times = [ShapeTime(k, t) for k, t in (("timed:0", small), ("timed:1", large)) if t is not None]
        return Outcome(
            Verdict(Word.ACCEPT, "judge"), Measurement(Evidence.MEASURED, "gpu", "search", tuple(times), abandoned)
        )


def test_the_score_is_the_geometric_mean_over_shapes_and_the_best_per_shape_is_kept():
    task = dataclasses.replace(simulated.task(), space={"BLOCK": (1024, 512, 256, 128, 2048)})
    table = {
        1024: (10.0, 100.0, False),
        512: (5.0, 80.0, False),
        256: (20.0, 50.0, False),
        128: (4.0, None, True),
        2048: (30.0, 300.0, True),
    }
    result = search(Store.open_in_memory(), "tpe", Fixed(table), task=task, window=1, trials=10).run()
    scores = {t.config["BLOCK"]: t.score for t in result.trials}
    assert scores[1024] == 1.0 and scores[512] == pytest.approx((0.5 * 0.8) ** 0.5)
    assert scores[256] == pytest.approx(0.5**0.5) and scores[2048] == 1.0  # where it is slower, the seed runs
    assert result.best.config["BLOCK"] == 512
    assert result.per_shape["timed:0"].config["BLOCK"] == 512  # an abandoned time is rough: it wins nothing
    assert result.per_shape["timed:1"].config["BLOCK"] == 256
    if result.trials[-1].config["BLOCK"] == 128:
        assert scores[128] >= result.best.score


def test_a_wrong_seed_stops_the_run_and_says_where_and_by_how_much():
    class Wrong(Evaluator):
        def evaluate(self, kernel, config, incumbent=None):
            return Outcome(Verdict(Word.WRONG, "judge", "wrong values", error_ratio=812.0, detail={"shape": "timed:1"}))

    store = Store.open_in_memory()
    with pytest.raises(TaskError, match="seed kernel of simulated.*n=65536.*wrong values.*812 times"):
        search(store, evaluator=Wrong()).run()
    assert [t.outcome.verdict.word for t in store.load_trials(1)] == [Word.WRONG]


def test_an_empty_or_impossible_space_is_said_at_once():
    for space in ({}, {"num_warps": (3,)}):
        with pytest.raises(SpaceError):
            search(Store.open_in_memory(), task=dataclasses.replace(simulated.task(), space=space))


def test_a_budget_in_seconds_ends_the_run():
    result = search(
        Store.open_in_memory(), evaluator=simulated.Slow(EXACT, 0.02), trials=10_000, budget_seconds=0.3, window=2
    ).run()
    assert 0 < len(result.trials) < 10_000 and not result.interrupted
    assert result.seconds < 60  # all would take 100 s, of which a busy machine gives few


# ---------------------------------------------------------------- ends


def test_ctrl_c_finishes_what_is_in_flight_and_the_run_can_go_on(tmp_path):
    unbroken = story(search(Store.open_in_memory()).run().trials)
    with Store.open(tmp_path / "a.db") as store:
        counting = Counting(simulated.Slow(EXACT, 0.002))
        result = search(store, evaluator=counting).run(
            lambda trial, progress: trial.number == 11 and signal.raise_signal(signal.SIGINT)
        )
        assert result.interrupted and 12 <= len(result.trials) <= 12 + 4
        assert len(store.load_trials(result.run.id)) == len(result.trials) == len(counting.asked)
        assert store.load_run(result.run.id).finished is None
        before = signal.getsignal(signal.SIGINT)
        resumed = search(store, resume=store.load_run(result.run.id)).run()
        assert signal.getsignal(signal.SIGINT) is before
        assert story(resumed.trials) == unbroken and not resumed.interrupted


def test_a_second_ctrl_c_drops_what_is_in_flight():
    def twice(trial, progress):
        if trial.number == 5:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    store = Store.open_in_memory()
    result = search(store).run(twice)
    assert result.interrupted and len(result.trials) == len(store.load_trials(result.run.id)) == 6


class Killed(BaseException):
    """Ends a run as a kill would: nothing of it gets to clean up."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["evolve", "best_of_n", "tpe", "autotune", "random_walk"])
def test_a_run_that_is_cut_anywhere_goes_on_to_the_same_result_and_measures_nothing_twice(name):
    evaluator = simulated.Failing(simulated.Noisy(EXACT, 0.02), 0.2)
    unbroken = story(search(Store.open_in_memory(), name, evaluator).run().trials)
    for cut in (0, 1, 3, 4, 17, 38):
        store, first, second = Store.open_in_memory(), Counting(evaluator), Counting(evaluator)

        def kill(trial, progress, cut=cut):
            if trial.number == cut:
                raise Killed

        with pytest.raises(Killed):
            search(store, name, first).run(kill)
        stored = [(t.kernel, config_key(t.config)) for t in store.load_trials(1)]
        assert len(stored) == cut + 1
        result = search(store, name, second, resume=store.load_run(1)).run()
        assert story(result.trials) == unbroken == story(store.load_trials(1))
        assert not set(second.asked) & set(stored) and len(second.asked) == 40 - len(stored)


@pytest.mark.parametrize("name", ["evolve", "random_walk"])
def test_a_run_may_be_given_more_trials(name):
    """The asks of evolve depend on its budget: those made under the smaller one stand."""
    store = Store.open_in_memory()
    shorter = search(store, name, trials=20).run()
    longer = search(store, name, trials=40, resume=store.load_run(1)).run()
    assert len(longer.trials) == 40 and story(longer.trials)[:20] == story(shorter.trials)
    assert store.load_run(1).facts.trials == 40
    again = search(store, name, trials=40, resume=store.load_run(1)).run()
    assert story(again.trials) == story(longer.trials)
    if name == "random_walk":
        assert story(longer.trials) == story(search(Store.open_in_memory(), name, trials=40).run().trials)


def test_a_finished_run_resumed_evaluates_nothing():
    store, counting = Store.open_in_memory(), Counting(EXACT)
    done = search(store).run()
    again = search(store, evaluator=counting, resume=store.load_run(1)).run()
    assert counting.asked == [] and story(again.trials) == story(done.trials) and again.best == done.best


def test_a_proposer_that_cannot_repeat_itself_is_not_asked_again():
    class Moody(Proposer):
        def __init__(self):
            self.rng = random.SystemRandom()

        def propose(self, request, rng):
            return simulated.SimulatedProposer(LAND).propose(request, self.rng)

    store = Store.open_in_memory()
    before = search(store, proposer=Moody(), trials=30).run()
    after = search(store, proposer=Moody(), trials=40, resume=store.load_run(1)).run()
    assert story(after.trials)[:30] == story(before.trials)


def test_rows_that_disagree_with_what_is_asked_are_refused():
    store = Store.open_in_memory()
    search(store, trials=20, window=4).run()
    with pytest.raises(StoreError, match="window 5: it has 4"):
        search(store, trials=20, window=5, resume=store.load_run(1))
    with pytest.raises(StoreError, match="seed 9"):
        search(store, trials=20, seed=9, resume=store.load_run(1))
    wider = dataclasses.replace(store.load_run(1).facts, settings={"kernels": 8})
    with pytest.raises(StoreError, match="1 cannot be resumed with kernels 8: it has its default; give that"):
        begin_run(store, simulated.task(), wider, store.load_run(1))
    with pytest.raises(StoreError, match="task file has changed"):
        search(store, trials=20, resume=store.load_run(1), task=dataclasses.replace(simulated.task(), digest="other"))
    other = strategies.make("random_walk", make_start(simulated.task()))
    with pytest.raises(StoreError, match="its trial [0-9]+ was kernel"):
        search(store, trials=20, resume=store.load_run(1), strategy=other).run()
    assert len(store.load_trials(1)) == 20


def test_times_of_two_tritons_are_not_one_runs():
    store = Store.open_in_memory()
    first = search(store, trials=20)
    store.database.conn.execute("""UPDATE run SET versions = '{"torch":"2.0","triton":"3.5.0"}'""")
    store.database.conn.commit()
    facts = dataclasses.replace(first.facts, versions={"torch": "2.1", "triton": "3.6.0"})
    settings = dataclasses.replace(first.settings, facts=facts)
    with pytest.raises(
        StoreError, match=r"cannot be resumed with triton 3.6.0: its times are of triton 3.5.0; install"
    ):
        type(first)(first.task, first.strategy, first.proposer, EXACT, store, settings, store.load_run(1))


def test_a_full_disk_ends_the_run_with_what_was_stored(tmp_path):
    with Store.open(tmp_path / "a.db") as store:

        def fill(trial, progress):
            if trial.number == 5:
                store.query(f"PRAGMA max_page_count = {store.query('PRAGMA page_count')[0]['page_count']}")

        with pytest.raises(StoreError, match="no disk space"):
            search(store, trials=300).run(fill)
    with Store.open(tmp_path / "a.db") as store:
        kept = store.load_trials(1)
        assert [t.number for t in kept] == list(range(len(kept)))
        resumed = search(store, trials=300, resume=store.load_run(1)).run()
        assert len(resumed.trials) == 300


# ---------------------------------------------------------------- full depth when its turn comes


class Screening(Evaluator):
    """Accepts at `screen`; `complete` rejects what `wrong` says and remembers what it was asked."""

    def __init__(self, wrong=lambda config: False):
        self.wrong, self.completed = wrong, []

    def evaluate(self, kernel, config, incumbent=None):
        return EXACT.evaluate(kernel, config, incumbent)

    def complete(self, kernel, config, outcome):
        self.completed.append(config_key(config))
        if self.wrong(config):
            return Outcome(Verdict(Word.WRONG, "judge", "wrong where only full looks", "full"))
        return dataclasses.replace(outcome, verdict=dataclasses.replace(outcome.verdict, depth="full"))


@pytest.mark.parametrize("window", [1, 8])
def test_every_new_best_and_nothing_else_is_judged_at_full_depth(window):
    screening = Screening()
    result = search(Store.open_in_memory(), "random_walk", screening, window=window, trials=60).run()
    best, bests = 9.0, []
    for trial in result.trials:
        if trial.accepted and trial.score < best:
            best = trial.score
            bests.append(trial)
    assert [config_key(t.config) for t in bests] == screening.completed
    assert {t.outcome.verdict.depth for t in bests} == {"full"}
    assert {t.outcome.verdict.depth for t in result.trials if t.accepted and t not in bests} <= {"screen"}


def test_what_full_rejects_is_no_best():
    screening = Screening(lambda config: config["num_warps"] != 4)  # the seed's
    result = search(Store.open_in_memory(), "random_walk", screening, trials=60).run()
    rejected = [t for t in result.trials if t.outcome.verdict.reason.startswith("wrong where")]
    assert rejected and all(t.score is None and t.outcome.measurement is None for t in rejected)
    assert result.best.config["num_warps"] == 4


def test_several_runs_share_one_thread_and_each_is_the_run_that_it_would_be_alone():
    from concurrent.futures import ThreadPoolExecutor, wait

    alone = [story(search(Store.open_in_memory(), seed=s).run().trials) for s in (1, 2)]
    store = Store.open_in_memory()
    both = [search(store, seed=s, evaluator=simulated.Slow(EXACT, 0.003)) for s in (1, 2)]
    with ThreadPoolExecutor(4) as pool:
        steps = [one.steps(pool) for one in both]
        while steps:
            for one in list(steps):
                awaited = next(one, None)
                if awaited is None:
                    steps.remove(one)
                else:
                    wait([awaited])
    assert [story(one.result().trials) for one in both] == alone
    assert all(store.load_run(one.run_row.id).finished for one in both)
