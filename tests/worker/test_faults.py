"""Every fault is a verdict, and the same pools accept the honest kernel that comes next."""

import os

import faults
import pytest

from kernelsearch.core.types import Word

EXPECTED = {"environment", "session", "no_new_privs", "private_folder", "descriptors", "limits"}


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    with faults.open_bench(tmp_path_factory.mktemp("faults")) as bench:
        yield bench


@pytest.mark.slow
@pytest.mark.parametrize("fault", faults.WITHOUT_GPU, ids=lambda f: f.name)
def test_fault_is_a_verdict_and_the_next_is_accepted(bench, fault):
    aftermath = faults.inflict_and_recover(bench, fault)
    assert aftermath.verdict.word is fault.word, aftermath.verdict.reason
    assert aftermath.after.accepted, aftermath.after.reason


def test_verdicts_name_the_layers_of_the_worker_that_ran_the_candidate(bench):
    accepted = faults.evaluate(bench, faults.make_honest(bench))
    rejected = faults.endless_loop(bench)
    for verdict in (accepted, rejected):
        layers = set(verdict.referee.layers)
        assert layers >= EXPECTED
        assert layers >= set(bench.evaluators.layers)
        assert not layers & {name for name, _ in bench.evaluators.missing}


def test_memory_is_the_reason_that_is_given(bench):
    verdict = faults.hoards_memory(bench)
    assert verdict.word is Word.CRASH
    assert "1.0 GiB of memory" in verdict.reason


def test_a_dead_worker_leaves_no_files(bench):
    folder = bench.workplace.cache
    with bench.compilers.lease() as worker:
        left = f"{folder}/compile-{worker.pid}"
        assert os.path.isdir(left)
        worker.kill()
    assert not os.path.exists(left)


@pytest.mark.slow
def test_a_profile_leaves_the_kernel_as_it_was(bench):
    """Counting samples the iterations of loops; judging the same kernel afterwards must run them all."""
    line = "turns = 0.0\n    for turn in range(0, 200):\n        turns += 1.0\n    y = y * (turns / 200.0)"
    kernel = faults.add_line(bench, line)
    for _ in range(2):  # the second time by workers that have profiled it
        verdict = faults.evaluate(bench, kernel)
        assert verdict.accepted, verdict.reason


def test_a_judge_that_is_lost_is_replaced_by_one_with_the_same_task(bench):
    with bench.judge.lease() as worker:
        worker.kill()
    verdict = faults.evaluate(bench, faults.make_honest(bench))
    assert verdict.accepted, verdict.reason
