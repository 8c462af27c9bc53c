"""What a candidate may take of an evaluator follows from what the task's own kernel takes, and ends early."""

from types import SimpleNamespace

import pytest

from kernelsearch.trial.rejection import ALLOWED_BYTES, ALLOWED_S, Rejection, ask_within
from kernelsearch.worker.processes.workers import Spent, WorkerGrew, WorkerHung

MOST_S = 60.0


class Whole(str):
    """A job whose outputs are compared whole."""

    sampled = (0, 0)


class Few(str):
    """A job with a large grid."""

    sampled = (7,)


class Evaluators:
    """Takes so many seconds and bytes for the seed and for the candidate, by whom a job is about."""

    def __init__(self, **needs):
        self.needs, self.seconds = needs, 0.0

    def ask(self, job, timeout, memory, spent):
        seconds, used = self.needs[job]
        self.seconds += min(seconds, timeout)
        if used > (memory or used):
            raise WorkerGrew("it used more memory")
        if seconds > timeout:
            raise WorkerHung(f"no answer within {timeout} s")
        spent.seconds, spent.memory = seconds, used
        return job


def judge(pool, bench, times=1):
    seed = SimpleNamespace(is_seed=True, bench=bench)
    candidate = SimpleNamespace(is_seed=False, bench=bench, left_s=ALLOWED_S)
    for what in range(times):
        measure = lambda what=what: ask_within(seed, pool, Whole("seed"), MOST_S, what, None)  # noqa: E731
        ask_within(candidate, pool, Whole("candidate"), MOST_S, what, measure)
    return candidate


def refusal(pool, times=1):
    with pytest.raises(Rejection) as refused:
        judge(pool, SimpleNamespace(spent={}), times)
    return refused.value.verdict


def test_one_that_does_not_end_costs_little_on_a_small_task():
    pool = Evaluators(seed=(0.5, 1), candidate=(1e9, 1))
    verdict = refusal(pool)
    assert pool.seconds <= ALLOWED_S + 0.5 < 20
    assert verdict.word == "timeout" and "where the task's own kernel takes 0.5 s" in verdict.reason


def test_one_that_is_slow_everywhere_ends_too():
    pool = Evaluators(seed=(0.1, 1), candidate=(4.0, 1))
    assert refusal(pool, times=40).word == "timeout"
    assert pool.seconds < 25


@pytest.mark.parametrize("slower", [1.0, 7.5])
def test_a_large_task_gives_its_candidates_the_time_that_it_needs(slower):
    pool = Evaluators(seed=(6.0, 1), candidate=(6.0 * slower, 1))
    bench = SimpleNamespace(spent={})
    assert judge(pool, bench, times=4).left_s > 0 or bench.spent
    known = SimpleNamespace(spent=dict.fromkeys(range(4), Spent(6.0, 1)))
    assert judge(pool, known, times=4).left_s == ALLOWED_S  # what the seed takes too costs nothing


def test_the_task_decides_how_much_memory_too():
    assert refusal(Evaluators(seed=(0.1, 2**28), candidate=(0.1, ALLOWED_BYTES + 1))).word == "crash"
    judge(
        Evaluators(seed=(0.1, ALLOWED_BYTES), candidate=(0.1, 2 * ALLOWED_BYTES)),
        SimpleNamespace(spent={}),
    )


def test_who_is_asked_again_after_a_timeout_has_all_of_its_time():
    pool, bench = Evaluators(seed=(0.1, 1), candidate=(9.0, 1)), SimpleNamespace(spent={})
    candidate = SimpleNamespace(is_seed=False, bench=bench, left_s=1.0)
    with pytest.raises(Rejection):
        ask_within(candidate, pool, Whole("candidate"), MOST_S, "it", lambda: None)
    assert ask_within(candidate, pool, Whole("candidate"), MOST_S, "it", lambda: None) == "candidate"


def test_a_few_programs_that_need_all_others_have_their_own_time():
    pool, bench = Evaluators(candidate=(20.0, 1)), SimpleNamespace(spent={})
    candidate = SimpleNamespace(is_seed=False, bench=bench, left_s=ALLOWED_S)
    for what in range(5):
        ask_within(candidate, pool, Few("candidate"), MOST_S, what, None)
    assert candidate.left_s == ALLOWED_S
    pool.needs["candidate"] = (1e9, 1)
    with pytest.raises(Rejection):
        ask_within(candidate, pool, Few("candidate"), MOST_S, "endless", lambda: None)
    assert pool.seconds <= 5 * 20.0 + 30
