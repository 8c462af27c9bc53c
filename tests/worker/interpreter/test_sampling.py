"""Programs that stand for a large grid: the same places of every launch, nothing believed that was not read right."""

import numpy as np
import pytest

from kernelsearch.kernel.source import Kernel
from kernelsearch.trial.without_gpu import asks_for_sms
from kernelsearch.worker.interpreter.races import AccessLog
from kernelsearch.worker.interpreter.sampling import AFFORDED_S, GridSample, _line


def log(stored, poison=7, blank=(), atomics=False, withdrawn=True, unwritten=()):
    """What a launch left: who stored to each element of its one buffer, which begins at 100."""
    writing = set() if stored is None else {int(s) for s in stored if s >= 0}
    made = AccessLog({})
    made.starts, made.stored = np.array([100], dtype=np.uint64), [None if stored is None else np.array(stored)]
    made.updated, made.poison, made.fresh = [made.stored[0] if atomics else None], [poison], [poison is not None]
    made.blank, made.writing, made.unwritten = set(blank), writing, dict.fromkeys(unwritten, "loads what nobody wrote")
    made.withdraw, made.hide_unwritten = lambda tensors: withdrawn, lambda tensors: None
    return made


def ran(sample, grid, made, asked=None, joined=False):
    """Runs a launch; asked gets the programs that run after the first few."""
    more = []
    sample.run_launch(made, grid, joined, {}, more.append)
    if asked is not None:
        asked += [program for programs in more[1:] for program in programs]


def test_programs_of_two_launches_lie_at_the_same_places():
    sample = GridSample(5)
    rows = {x for x, _, _ in sample.choose_programs((5000, 1, 1), False)}
    assert (
        rows == {x for x, _, _ in sample.choose_programs((5000, 4, 1), True)} and {0, 4999} <= rows and len(rows) == 6
    )
    assert len(sample.choose_programs((5000, 4, 1), True)) == 24  # all parts of each row
    assert len(sample.choose_programs((4, 4, 1), False)) == 16  # a small grid is whole


def test_who_read_the_unwritten_is_not_believed():
    sample = GridSample(5)
    ran(sample, (16, 1, 1), log(np.arange(16), blank=range(16)))
    assert not sample.can_be_judged
    sample = GridSample(5)
    ran(sample, (16, 1, 1), log(np.arange(16), blank=(3,)))
    assert sample.can_be_judged
    sample = GridSample(5)
    ran(sample, (16, 1, 1), log(np.arange(16), blank=(3,), withdrawn=False))
    assert not sample.can_be_judged


@pytest.mark.parametrize("first, judged", [
    (dict(), True), (dict(poison=None), False), (dict(atomics=True), False),
])  # fmt: skip
def test_what_an_earlier_launch_left_out_must_be_seen_to_be_missing(first, judged):
    sample = GridSample(5)
    ran(sample, (1000, 1, 1), log(np.arange(1000), **first))
    ran(sample, (16, 1, 1), log(np.arange(16)))
    assert sample.can_be_judged is judged


def test_a_whole_launch_with_atomics_is_judged_and_a_part_of_one_is_not():
    whole, part = GridSample(5), GridSample(5)
    ran(whole, (16, 1, 1), log(np.arange(16), atomics=True))
    ran(part, (1000, 1, 1), log(np.arange(1000), atomics=True))
    assert whole.can_be_judged and not part.can_be_judged


def test_programs_that_write_all_of_their_share_cover_the_buffer():
    sample = GridSample(5)
    ran(sample, (1000, 1, 1), log(np.repeat(np.arange(1000), 8)))
    assert sample.cover_of(100) == 1.0


def test_one_element_of_eight_is_an_eighth_also_at_more_places():
    asked = []
    stored = np.where(np.arange(8000) % 8 == 0, np.arange(8000) // 8, -1)
    sample = GridSample(5)
    ran(sample, (1000, 1, 1), log(stored), asked)
    assert sample.cover_of(100) == pytest.approx(1 / 8) and len(asked) >= 20


def test_idle_parts_along_a_short_axis_are_no_idleness():
    asked = []
    stored = np.arange(1000) * 8  # of eight programs a row the first writes its one element
    sample = GridSample(5)
    ran(sample, (1000, 8, 1), log(stored), asked)
    assert sample.cover_of(100) == pytest.approx(1.0) and len(asked) <= 48


def test_a_later_launch_adds_to_the_cover_and_hides_nothing():
    sample = GridSample(5)
    ran(sample, (1000, 1, 1), log(np.where(np.arange(8000) < 1000, np.arange(8000), -1)))
    ran(sample, (1, 1, 1), log(np.where(np.arange(8000) == 7999, 0, -1)))
    assert sample.cover_of(100) == pytest.approx(1 / 8, abs=0.001)
    for _ in range(3):  # the same elements again are no more of them
        ran(sample, (1000, 1, 1), log(np.where(np.arange(8000) < 1000, np.arange(8000), -1)))
    assert sample.cover_of(100) == pytest.approx(1 / 8, abs=0.001)
    halves = GridSample(5)
    ran(halves, (1000, 1, 1), log(np.where(np.arange(2000) % 2 == 0, np.arange(2000) // 2, -1)))
    ran(halves, (1000, 1, 1), log(np.where(np.arange(2000) % 2 == 1, np.arange(2000) // 2, -1)))
    assert halves.cover_of(100) == pytest.approx(1.0)


@pytest.mark.parametrize("end", [0, 999])
def test_the_first_and_the_last_program_stand_for_themselves_alone(end):
    sample = GridSample(5)
    stored = np.where(np.arange(8000) < 7000, end, np.arange(8000) - 7000)  # one program writes 7000 elements
    ran(sample, (1000, 1, 1), log(stored))
    assert sample.cover_of(100) == pytest.approx(1.0)
    ran(lazy := GridSample(5), (1000, 1, 1), log(np.where(np.arange(8000) < 500, end, -1)))
    assert lazy.cover_of(100) == pytest.approx(1 / 16)


def test_what_depends_on_memory_that_no_launch_wrote_is_suspected_and_never_judged_by_a_few():
    sample = GridSample(5)
    ran(sample, (1000, 1, 1), log(np.arange(1000), blank=range(1, 1000), unwritten=[200]))
    assert sample.suspect and not sample.can_be_judged
    later = GridSample(5)
    ran(later, (1000, 1, 1), log(np.arange(1000)))
    ran(later, (1000, 1, 1), log(None, unwritten=[100]))  # programs of the first launch that did not run may have
    assert not later.suspect and later.can_be_judged


def test_a_buffer_that_no_launch_writes_is_not_covered():
    sample = GridSample(5)
    ran(sample, (1000, 1, 1), log(None))
    assert (
        sample.cover_of(100) == 0.0 and sample.cover_of(999) == 1.0
    )  # one that no kernel was passed is the launcher's own


def test_a_line_goes_along_short_axes_only():
    assert _line((70, 1, 0), (5000, 4, 1)) == [(70, y, 0) for y in range(4)]
    assert len(_line((3, 2, 1), (8, 8, 8))) == 64


def test_what_is_judged_does_not_depend_on_the_clock(results):
    """The verdict of a busy machine is that of an idle one: equal estimates, so the small grid runs whole each time."""
    small, large = results["as it goes"]
    assert small[0] and not large[0] and 0.0 < small[1] < AFFORDED_S < large[1]
    assert results["still"] == results["racing"] == results["as it goes"]


KERNEL = """import triton
import triton.language as tl
{spec}

@triton.jit
def f(x_ptr, n, FAST: tl.constexpr):
    tl.store(x_ptr, n)
"""


@pytest.mark.parametrize("spec, config, asks", [
    ("", {}, False), ('GRID = "(min(grid(0), num_sms),)"', {}, True), ('ARGS = {"n": "num_sms"}', {}, True),
    ('SCRATCH = {"x_ptr": ("float32", "(num_sms,)")}', {}, True), ("", {"FAST": "num_sms > 64"}, True),
])  # fmt: skip
def test_whoever_reads_the_number_of_multiprocessors_is_asked_twice(spec, config, asks):
    assert asks_for_sms(Kernel.parse(KERNEL.format(spec=spec)), config) is asks
