"""Many runs of an asynchronous kernel, without a GPU: the launch is a function, and one of its answers is another."""

from types import SimpleNamespace

import pytest
import torch

from kernelsearch.compile.code import InstructionCounts
from kernelsearch.core.types import Word
from kernelsearch.trial.with_gpu import is_asynchronous
from kernelsearch.verify.expectation import make_expectation
from kernelsearch.worker.gpu.repeats import COUNT, find_unequal_run
from kernelsearch.worker.judging import verdicts
from kernelsearch.worker.messages import ipc
from kernelsearch.worker.messages.jobs import REPEATED, JudgedCase, JudgeSeeded, Ran

RIGHT = torch.softmax(torch.randn(4, 100), -1)


class Late:
    """A launch that is right but for one run."""

    def __init__(self, wrong=None, at=57):
        self.wrong, self.at, self.made, self.disturbed = wrong, at, 0, 0

    def run(self):
        assert self.disturbed == self.made + 1, "other work begins before each run"
        self.made += 1
        return [self.wrong if self.made == self.at and self.wrong is not None else RIGHT.clone()]

    def disturb(self):
        self.disturbed += 1


def changed(value):
    return RIGHT.clone().index_put_((torch.tensor(3), torch.tensor(99)), torch.tensor(value))


@pytest.mark.parametrize("wrong", [changed(float("nan")), changed(-0.0), RIGHT[:2]])
def test_one_other_run_in_a_hundred_is_seen(wrong):
    late = Late(wrong)
    number, outputs = find_unequal_run(late.run, [RIGHT], disturb=late.disturb)
    assert number == 57 == late.made and outputs[0] is wrong


def test_equal_runs_are_all_made():
    late = Late()
    assert find_unequal_run(late.run, [RIGHT], disturb=late.disturb) == (COUNT, None) and late.made == COUNT >= 100


def test_with_atomics_the_last_bits_may_differ_but_not_what_is_nan():
    late = Late(changed(0.5), at=3)
    assert find_unequal_run(late.run, [RIGHT], 10, late.disturb, atomics=True) == (10, None)
    late = Late(changed(float("nan")), at=3)
    assert find_unequal_run(late.run, [RIGHT], 10, late.disturb, atomics=True)[0] == 3


def test_a_slow_kernel_is_not_run_for_ever(monkeypatch):
    times = iter(range(0, 1000, 4))
    monkeypatch.setattr("kernelsearch.worker.gpu.repeats.time.monotonic", lambda: next(times))
    number, outputs = find_unequal_run(lambda: [RIGHT], [RIGHT])
    assert 2 < number < 10 and outputs is None


@pytest.mark.parametrize(
    ("counts", "wanted"), [({"wgmma": 4}, True), ({"tma": 1}, True), ({"mma": 8, "fma": 3}, False)]
)
def test_which_binaries_are_asynchronous(counts, wanted):
    assert is_asynchronous(SimpleNamespace(mix=InstructionCounts(counts=counts))) is wanted


@pytest.mark.parametrize(
    ("unequal", "word"), [((), Word.ACCEPT), ((changed(float("nan")),), Word.RACE), ((changed(1e-7),), Word.RACE)]
)
def test_the_verdict_on_an_unequal_run_is_a_race(monkeypatch, unequal, word):
    monkeypatch.setattr(ipc, "open_shared", lambda tensor: tensor)
    x = torch.randn(4, 100)
    softmax = lambda x: torch.softmax(x, -1)  # noqa: E731
    expected = make_expectation(softmax, softmax, [x], shape="4x100")
    opened = SimpleNamespace(
        task=SimpleNamespace(params=lambda key: {"rows": 4, "cols": 100}),
        build_case=lambda shape: SimpleNamespace(inputs=(x,), names=("x",)),
        load_timed=lambda case: (expected, [x]),
        mutated_positions=lambda case: (),
        make_room=lambda: None,
        mark_bits=lambda case, outputs: (),
        find_accepted=lambda *what: pytest.fail("an unequal run is judged") if unequal else None,
        keep_accepted=lambda *what: pytest.fail("a race is kept") if unequal else None,
    )
    unequal = tuple(u if bool(u.isnan().any()) else softmax(x) + u[3, 99] for u in unequal)
    ran = Ran((softmax(x),), (x,), repeated=57, unequal=unequal)
    verdict = verdicts.judge_seeded(opened, JudgeSeeded(JudgedCase("4x100", "randn", 1), ran))
    assert verdict.word is word and verdict.detail[REPEATED] == 57
    assert verdict.accepted or verdict.detail["label"] == "rows=4 cols=100"
