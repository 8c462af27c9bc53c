"""On a GPU: every fault is a verdict, the same pools accept the honest kernel that comes next, and soon."""

import time

import faults
import pytest

pytestmark = pytest.mark.gpu

CRASH_S, HANG_S = 5.0, 10.0
"""How soon after the fault the next, honest kernel must have been accepted, unless a start of all workers takes half as
long just now: others may compute beside."""


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    begun = time.perf_counter()
    with faults.open_bench(tmp_path_factory.mktemp("faults")) as bench:
        assert bench.device is not None
        yield bench, time.perf_counter() - begun


@pytest.fixture
def bench(opened):
    return opened[0]


@pytest.mark.parametrize("fault", faults.WITH_GPU, ids=lambda f: f.name)
def test_fault_is_a_verdict_and_the_next_is_accepted(opened, fault):
    bench, start_s = opened
    aftermath = faults.inflict_and_recover(bench, fault)
    assert aftermath.verdict.word is fault.word, aftermath.verdict.reason
    assert aftermath.after.accepted, aftermath.after.reason
    if fault.limit_s:
        assert aftermath.seconds - fault.limit_s + aftermath.after_seconds <= max(HANG_S, 2 * start_s)
    else:
        assert aftermath.after_seconds <= max(CRASH_S, 2 * start_s)


def test_layers_of_the_run_worker_are_in_the_verdict(bench):
    verdict = faults.evaluate(bench, faults.make_honest(bench))
    assert verdict.referee.mode == "gpu"
    assert set(verdict.referee.layers) >= {"environment", "session", "no_new_privs", "private_folder", "descriptors"}
