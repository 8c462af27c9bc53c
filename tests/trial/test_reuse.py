"""Nothing is measured twice: by candidate, by what runs, across runs of a database; and when a reuse is not allowed."""

import threading
from dataclasses import replace

import pytest

import simulated
from kernelsearch.core.types import Outcome, Proposal, ProposalKind, Referee, Trial, Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import RunFacts, Structure, candidate_digest
from kernelsearch.record.store import Store
from kernelsearch.trial.reuse import ReuseTerms, ReusingEvaluator
from kernelsearch.worker.messages.jobs import REPEATED
from made_outcomes import measure

TASK = simulated.task()
SEED = Kernel.parse(TASK.seed)
TERMS = ReuseTerms(TASK.digest, {"timed:0": ()}, "gpu", "gpu", "search-1", {"triton": "3.6"})
ACCEPT = Verdict(Word.ACCEPT, "judge", referee=Referee("gpu"))


class Inner:
    """Counts what is evaluated; the work of a candidate is its num_warps."""

    def __init__(self, time_us=10.0, abandoned=False, verdict=ACCEPT):
        self.asked, self.completed, self.time_us, self.abandoned, self.verdict = [], [], time_us, abandoned, verdict

    def evaluate(self, kernel, config, incumbent=None):
        self.asked.append(dict(config))
        if not self.verdict.accepted:
            return Outcome(self.verdict)
        return Outcome(self.verdict, measure(self.time_us, abandoned=self.abandoned), seconds=1.0)

    def complete(self, kernel, config, outcome):
        self.completed.append(dict(config))
        return replace(outcome, verdict=replace(outcome.verdict, depth="full"))

    def work(self, kernel, config):
        return f"work {config['num_warps']}"


def config(warps=4, block=1024):
    return {"BLOCK": block, "num_warps": warps}


def test_the_same_candidate_is_evaluated_once_and_says_whose_measurement_it_has():
    inner = Inner()
    reusing = ReusingEvaluator(inner, TERMS)
    first, again = reusing.evaluate(SEED, config()), reusing.evaluate(SEED, config())
    assert len(inner.asked) == 1 and first.measured_by == "" and first.work == "work 4"
    assert again.measured_by == candidate_digest(TASK.digest, SEED.digest, config()) and again.seconds == 0.0
    assert again.measurement == first.measurement


def test_the_same_work_is_measured_once_but_judged_in_full_for_itself():
    inner = Inner(verdict=replace(ACCEPT, depth="full"))
    reusing = ReusingEvaluator(inner, TERMS)
    reusing.evaluate(SEED, config(4, 1024))
    other = reusing.evaluate(SEED, config(4, 2048))
    assert len(inner.asked) == 1 and other.measured_by and other.measurement
    assert other.verdict.depth == "screen"  # at the shapes of `full` its binaries may be others
    assert reusing.complete(SEED, config(4, 2048), other).verdict.depth == "full" and len(inner.completed) == 1
    reusing.evaluate(SEED, config(8))
    assert len(inner.asked) == 2


@pytest.mark.parametrize("word", [Word.TIMEOUT, Word.CRASH])
def test_what_chance_may_have_decided_is_tried_again(word):
    inner = Inner(verdict=Verdict(word, "run", "gone", referee=Referee("gpu")))
    reusing = ReusingEvaluator(inner, TERMS)
    for _ in range(2):
        reusing.evaluate(SEED, config())
    assert len(inner.asked) == 2


def test_an_abandoned_measurement_counts_only_against_as_good_an_incumbent():
    inner = Inner(time_us=30.0, abandoned=True)
    reusing = ReusingEvaluator(inner, TERMS)
    reusing.evaluate(SEED, config(), measure(10.0))
    reusing.evaluate(SEED, config(), measure(12.0))
    assert len(inner.asked) == 1
    reusing.evaluate(SEED, config(), measure(20.0))  # 30 is not hopeless against 20
    reusing.evaluate(SEED, config())
    assert len(inner.asked) == 3


def stored(store, versions, outcome, target="gpu"):
    run = store.add_run(TASK, RunFacts("evolve", target=target, versions=versions))
    trial = Trial(
        0, Proposal(ProposalKind.SEED), SEED.digest, config(), outcome, 1.0 if outcome.verdict.accepted else None
    )
    store.add_trial(run, trial, Structure(SEED, 0))


def test_earlier_runs_of_the_database_are_looked_up_under_the_same_terms_only():
    with Store.open_in_memory() as store:
        outcome = replace(Inner().evaluate(SEED, config()), work="work 4")
        stored(store, {"triton": "3.5"}, outcome)
        stored(store, dict(TERMS.versions), outcome, target="another gpu")
        inner = Inner()
        reusing = ReusingEvaluator(inner, TERMS, store)
        assert reusing.evaluate(SEED, config()).measured_by == "" and len(inner.asked) == 1
        stored(store, dict(TERMS.versions), outcome)
        fresh = Inner()
        found = ReusingEvaluator(fresh, TERMS, store).evaluate(SEED, config())
        assert fresh.asked == [] and found.measurement == outcome.measurement
        by_work = ReusingEvaluator(fresh, TERMS, store).evaluate(SEED, config(4, 512))
        assert fresh.asked == [] and by_work.measured_by == found.measured_by
        two = replace(TERMS, points={"timed:0": (0.0,), "timed:1": (1.0,)})
        for terms in (replace(TERMS, protocol="search-2"), two):
            other = Inner()
            ReusingEvaluator(other, terms, store).evaluate(SEED, config())
            assert len(other.asked) == 1


def test_machine_code_that_raced_once_is_rejected_for_ever():
    raced = Verdict(
        Word.RACE, "judge", "one of many runs differs", "full", referee=Referee("gpu"), detail={REPEATED: 57}
    )

    class Racing(Inner):
        def complete(self, kernel, config, outcome):
            super().complete(kernel, config, outcome)
            return replace(outcome, verdict=raced, measurement=None) if config["BLOCK"] == 512 else outcome

    with Store.open_in_memory() as store:
        inner = Racing()
        reusing = ReusingEvaluator(inner, TERMS, store)
        early = reusing.evaluate(SEED, config(4, 1024))
        wrong = reusing.complete(SEED, config(4, 512), reusing.evaluate(SEED, config(4, 512)))
        assert wrong.verdict == raced
        assert reusing.complete(SEED, config(4, 1024), early).verdict == raced, "in flight when the other one raced"
        assert reusing.evaluate(SEED, config(4, 2048)).verdict == raced
        assert reusing.evaluate(SEED, config(8, 2048)).verdict.accepted and len(inner.completed) == 1
        stored(store, dict(TERMS.versions), wrong)
        stored(store, dict(TERMS.versions), early)  # newer, and lucky
        later = Inner()
        assert ReusingEvaluator(later, TERMS, store).evaluate(SEED, config(4, 64)).verdict.word is Word.RACE
        assert later.asked == []


def test_what_is_asked_at_the_same_time_is_evaluated_once():
    class Waiting(Inner):
        def evaluate(self, *args):
            gate.wait(5)
            return super().evaluate(*args)

    gate, inner = threading.Event(), Waiting()
    reusing = ReusingEvaluator(inner, TERMS)
    threads = [threading.Thread(target=reusing.evaluate, args=(SEED, config(4, b))) for b in (512, 512, 1024, 2048)]
    for thread in threads:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(5)
    assert len(inner.asked) == 1


def test_a_run_with_a_row_of_another_keeps_it_in_the_database():
    with Store.open_in_memory() as store:
        stored(store, {}, Outcome(ACCEPT, measure(5.0), work="w", measured_by="abc"))
        assert store.load_trials(1)[0].outcome.measured_by == "abc" and store.load_trials(1)[0].outcome.work == "w"
