"""On a GPU: every fault is a verdict, the same pools accept the honest kernel that comes next, and soon."""

import faults
import pytest

pytestmark = pytest.mark.gpu

CRASH_S, HANG_S = 5.0, 10.0
"""How soon after the fault the next, honest kernel must have been accepted."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    with faults.open_bench(tmp_path_factory.mktemp("faults")) as bench:
        assert bench.device is not None
        yield bench


@pytest.mark.parametrize("fault", faults.WITH_GPU, ids=lambda f: f.name)
def test_fault_is_a_verdict_and_the_next_is_accepted(bench, fault):
    aftermath = faults.inflict_and_recover(bench, fault)
    assert aftermath.verdict.word is fault.word, aftermath.verdict.reason
    assert aftermath.after.accepted, aftermath.after.reason
    if fault.limit_s:
        assert aftermath.seconds - fault.limit_s + aftermath.after_seconds <= HANG_S
    else:
        assert aftermath.after_seconds <= CRASH_S


def test_layers_of_the_run_worker_are_in_the_verdict(bench):
    verdict = faults.evaluate(bench, faults.make_honest(bench))
    assert verdict.referee.mode == "gpu"
    assert set(verdict.referee.layers) >= {"environment", "session", "no_new_privs", "private_folder", "descriptors"}
