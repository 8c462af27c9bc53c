"""One time-out or crash decides nothing for others: it is tried again, and what is left out is said."""

import threading
from dataclasses import replace

import pytest

from kernelsearch.core.types import Verdict, Word
from kernelsearch.tasks import shipped
from kernelsearch.trial import Evaluation, referee
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.rejection import REDRAW, Rejection, is_by_chance
from kernelsearch.trial.shared_state import Once
from kernelsearch.trial.without_gpu import NOT_RIGHT, SEED_SLOW
from kernelsearch.verify.regime_words import PADDED
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.workers import WorkerDied, WorkerHung

FAULTS = {WorkerHung: SEED_SLOW, WorkerDied: NOT_RIGHT}


@pytest.fixture(scope="module")
def opened(borrowing):
    """One bench, whose judge computes the right answers once; what an evaluation learns is its own."""
    with Bench.open(shipped.path("softmax"), "h100", compile_workers=1) as bench:
        yield bench


@pytest.fixture
def bench(opened):
    opened.right_on.clear()
    opened.once = Once()
    return opened


@pytest.fixture
def fail(bench, monkeypatch):
    """Makes the next `times` evaluations fail that `which` picks; returns the jobs that were asked."""
    ask, asked = bench.evaluators.ask, []

    def fail(fault, times, which):
        def flaky(job, limit_s, *limits):
            if isinstance(job, jobs.Evaluate) and which(job):
                asked.append(job)
                if len(asked) <= times:
                    raise fault("on purpose")
            return ask(job, limit_s, *limits)

        monkeypatch.setattr(bench.evaluators, "ask", flaky)
        return asked

    return fail


def is_only_padded(bench):
    (padded,) = (c for c in bench.cases("full") if c.padded)
    return lambda job: job.inputs == bench.inputs((padded,))


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_of_the_seed_drops_no_padded_rows(bench, fail, fault):
    asked = fail(fault, 1, is_only_padded(bench))
    evaluation = Evaluation(bench)
    cases = evaluation._cases("full")
    assert len(asked) == 2 and any(c.padded for c in cases)
    verdict = evaluation.verify(bench.seed, bench.facts.config)
    assert verdict.accepted and PADDED not in str(verdict.detail)


@pytest.mark.parametrize("fault", FAULTS)
def test_padded_rows_that_are_left_out_are_said(bench, fail, fault):
    asked = fail(fault, 2, is_only_padded(bench))
    verdict = Evaluation(bench).verify(bench.seed, bench.facts.config)
    assert len(asked) == 2 and verdict.accepted and verdict.detail[FAULTS[fault]] == [PADDED]
    assert f": {PADDED}\n" in referee.explain(verdict) and PADDED in str(referee.as_json(verdict))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_one_config_is_not_that_of_another_with_other_launch_options(bench, fail, fault):
    asked = fail(fault, 1, lambda job: True)
    evaluation = Evaluation(bench)
    evaluation.bench.once("seed on padded rows", lambda: Verdict(Word.ACCEPT, "judge"))
    first = evaluation.evaluate(bench.seed, {"num_warps": 4})
    assert first.verdict.word in (Word.TIMEOUT, Word.CRASH) and len(asked) == 1
    other = evaluation.evaluate(bench.seed, {"num_warps": 8})
    assert other.verdict.accepted, other.verdict


def test_what_chance_may_have_decided_is_made_again_once():
    once, made = Once(), []

    def make(word):
        made.append(word)
        return Verdict(word, "run", "" if word is Word.ACCEPT else "by chance")

    for word in (Word.TIMEOUT, Word.CRASH, Word.ACCEPT):
        once("flaky", lambda word=word: make(word), is_by_chance)
    assert made == [Word.TIMEOUT, Word.CRASH]  # two faults are no chance
    for _ in range(2):
        once("right", lambda: make(Word.ACCEPT), is_by_chance)
    assert made[2:] == [Word.ACCEPT]


def test_who_waited_for_a_fault_makes_it_again_also_if_it_was_raised():
    once, started, gate, answers = Once(), threading.Event(), threading.Event(), []

    def fault():
        started.set()
        gate.wait(10)
        raise Rejection(Verdict(Word.TIMEOUT, "run", "by chance"))

    def first():
        with pytest.raises(Rejection):
            once("key", fault, is_by_chance)

    threads = [threading.Thread(target=first)]
    threads[0].start()
    started.wait(10)
    threads += [threading.Thread(target=lambda: answers.append(once("key", lambda: 7, is_by_chance))) for _ in range(3)]
    for thread in threads[1:]:
        thread.start()
    gate.set()
    for thread in threads:
        thread.join(10)
    assert answers == [7, 7, 7]


@pytest.mark.slow
@pytest.mark.parametrize("ratio, draws", [(1.05, 2), (1.3, 1), (float("inf"), 1), (None, 1)])
def test_a_limit_that_is_missed_by_a_hair_has_a_second_draw(bench, monkeypatch, ratio, draws):
    judge_runs, usual, redrawn = bench.judge_runs, bench.cases("full")[0], []

    def judge(cases, runs, depth, **how):
        redrawn.extend(c for c in cases if c == replace(usual, seed=usual.seed + REDRAW))
        if usual in cases:
            return Verdict(Word.WRONG, "judge", "missed on purpose", depth, error_ratio=ratio)
        return judge_runs(cases, runs, depth, **how)

    monkeypatch.setattr(bench, "judge_runs", judge)
    verdict = Evaluation(bench).verify(bench.seed, bench.facts.config)
    assert verdict.accepted is (draws == 2) is bool(redrawn)
    assert verdict.accepted or verdict.reason == "missed on purpose"


def test_who_misses_the_limit_twice_is_refused(bench, monkeypatch):
    miss = Verdict(Word.WRONG, "judge", "missed on purpose", "full", error_ratio=1.05)
    monkeypatch.setattr(bench, "judge_runs", lambda *_, **__: miss)
    assert Evaluation(bench).verify(bench.seed, bench.facts.config).word is Word.WRONG
