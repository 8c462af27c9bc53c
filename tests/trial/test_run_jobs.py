"""Asking stand-ins for the run worker: who dies once is asked again, who lacks a binary gets it, the poisoned end."""

import contextlib

import pytest

from kernelsearch.core.errors import WorkerError
from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.trial import run_jobs
from kernelsearch.worker.messages import jobs
from kernelsearch.worker.processes.pool import Workplace
from kernelsearch.worker.processes.workers import WorkerDied, WorkerHung

GOOD = jobs.Ran(outputs=("y",))


class Runner:
    """Gives its answers one after the other; an exception is raised."""

    def __init__(self, *answers):
        self.answers, self.asked, self.killed = list(answers), [], False

    def ask(self, job, limit_s):
        self.asked.append(job)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self):
        self.killed = True


class Pool:
    def __init__(self, *runners):
        self.runners = list(runners)

    @contextlib.contextmanager
    def lease(self):
        yield self.runners.pop(0)


def ask(*runners, built=None, then=lambda answer: answer):
    return run_jobs.run_on_gpu(Pool(*runners), {"a": 1}, lambda binaries: dict(binaries), built, 3.0, then)


def test_a_worker_that_somebody_killed_costs_nothing():
    assert ask(Runner(WorkerDied("gone")), Runner(GOOD)) is GOOD


def test_a_job_that_kills_its_worker_does_so_twice():
    verdict = ask(Runner(WorkerDied("gone")), Runner(WorkerDied("again")))
    assert verdict.word is Word.CRASH and "again" in verdict.reason


def test_a_hang_is_not_asked_about_twice():
    assert ask(Runner(WorkerHung("3 s"))).word is Word.TIMEOUT


def test_missing_binaries_are_built_and_the_worker_is_asked_again():
    runner = Runner(jobs.MissingBinary(("spec",), (True,)), GOOD)
    assert ask(runner, built=lambda specs: {"b": specs}) is GOOD
    assert runner.asked == [{"a": 1}, {"a": 1, "b": (("spec", True),)}]


def test_as_many_rounds_as_bring_something_new():
    runner = Runner(*[jobs.MissingBinary((n,), (False,)) for n in "bcdefg"], GOOD)
    assert ask(runner, built=lambda specs: {specs[0][0]: specs}) is GOOD
    assert list(runner.asked[-1]) == list("abcdefg")


@pytest.mark.parametrize("built", [lambda specs: {}, lambda specs: {str(len(specs[0][0])): specs}])
def test_a_launcher_that_never_settles_is_static(built):
    missing = [jobs.MissingBinary(("x" * n,), (False,)) for n in range(run_jobs.BUILD_ROUNDS)]
    runner = Runner(*missing, GOOD)
    assert ask(runner, built=built).word is Word.STATIC


def test_a_lost_context_ends_the_worker():
    lost = Verdict(Word.CRASH, "run", "illegal address", detail={"poisoned": True})
    runner = Runner((jobs.Ran(verdict=lost),))
    assert ask(runner) is lost and runner.killed


def test_what_follows_happens_while_nobody_else_has_the_worker():
    pool = Pool(Runner(GOOD))
    assert run_jobs.run_on_gpu(pool, {}, dict, None, 3.0, lambda ran: (ran, len(pool.runners))) == (GOOD, 0)


def test_the_known_kernel_compiles_as_it_is_launched():
    with Workplace() as place:
        compilers = place.pool("compile", 1)
        runner = Runner(True, WorkerHung("20 s"))
        proves = run_jobs.make_prover(compilers, target_by_name("h100"))
        assert proves(runner) and not proves(runner)
        assert [name for name, _ in runner.asked[0].binary.params] == ["x_ptr", "y_ptr", "n"]


def test_only_who_takes_the_place_of_a_lost_worker_is_proven_and_who_fails_is_replaced():
    with Workplace() as place:
        pool = place.pool("compile", 1)
        answers, seen = [False, True], []
        pool.proves = lambda worker: seen.append(worker.pid) or answers.pop(0)
        with pool.lease() as worker:
            first = worker.pid
            worker.kill()
        assert not seen
        with pool.lease() as worker:
            assert seen[-1] == worker.pid and len({first, *seen}) == 3
        with pool.lease():
            assert len(seen) == 2
            worker.kill()
        pool.proves = lambda worker: False
        with pytest.raises(WorkerError, match="known kernel"), pool.lease():
            pass
