"""The search protocol takes other samples where the device waited for the host, and says so when it cannot."""

import statistics

import pytest

pytest.importorskip("torch")

from kernelsearch.measure.timing import events
from kernelsearch.measure.timing.events import (
    LATE_TRIES,
    LONGEST_WAIT_US,
    MAX_LATE,
    PARTS,
    HostWait,
    TimedSpan,
    collect_parts,
    collect_samples,
)


class Device:
    """Gives a kernel's time; of the batches' samples those that `late` names are late, and far too long."""

    def __init__(self, time_us, late=lambda number: False):
        self.time_us, self.late, self.waits, self.number = time_us, late, [], 0

    def take(self, first, wait_us):
        self.waits.append(wait_us)
        assert first == self.number
        numbers = range(self.number, self.number + events.ABANDON_AFTER)
        self.number += events.ABANDON_AFTER
        return [TimedSpan(self.time_us + 5_000.0 * self.late(n), self.late(n)) for n in numbers]


def test_late_samples_are_left_out_and_others_taken():
    device = Device(300.0, late=lambda n: n in (0, 1, 3, 4))
    samples = collect_samples(device.take, host_us=100.0)
    assert set(samples.times_us) == {300.0} and len(samples.times_us) >= events.MIN_SAMPLES
    assert (samples.late, samples.host_bound, samples.abandoned) == (4, False, False)
    assert device.waits[:3] == [190.0, 380.0, 760.0] and set(device.waits[2:]) == {760.0}
    assert samples.detail == {"host_us": 100.0, "late": 4}


def test_a_call_that_is_always_late_keeps_its_times_and_says_so():
    device = Device(300.0, late=lambda n: True)
    samples = collect_samples(device.take, host_us=1_900.0)
    assert samples.times_us == (5_300.0,) * MAX_LATE
    assert samples.detail == {"host_us": 1_900.0, "host_bound": True}
    assert max(device.waits) == LONGEST_WAIT_US


def test_few_good_samples_count_more_than_many_late_ones():
    samples = collect_samples(Device(300.0, late=lambda n: n % 6 < 5).take, host_us=50.0)
    assert samples.times_us == (300.0,) * 3 and samples.late == MAX_LATE


def test_only_samples_in_time_abandon_a_candidate():
    kept = collect_samples(Device(300.0, late=lambda n: n < 6).take, host_us=50.0, limit_us=1_000.0)
    assert not kept.abandoned and statistics.median(kept.times_us) == 300.0
    gone = collect_samples(Device(1_200.0, late=lambda n: n < 2).take, host_us=50.0, limit_us=1_000.0)
    assert gone.abandoned and len(gone.times_us) == 4


def test_without_late_samples_the_budget_ends_it():
    assert len(collect_samples(Device(10_000.0).take, 50.0).times_us) == 6
    assert len(collect_samples(Device(1_000.0).take, 50.0).times_us) == 6
    assert len(collect_samples(Device(20.0).take, 50.0).times_us) == events.MAX_SAMPLES


def test_parts_are_medians_of_calls_in_which_the_device_did_not_wait():
    waits = []

    def take(number, wait_us):
        waits.append(wait_us)
        return number == 1, [("a", 10.0 + number), ("b", 5.0), ("a", 1.0)]

    assert collect_parts(take, host_us=400.0) == {"a": 13.0, "b": 5.0}
    assert waits == [1090.0, 1090.0, 2180.0, 2180.0] and len(waits) == PARTS + 1


def test_parts_of_a_host_that_is_always_late_are_not_known():
    waits = []
    assert collect_parts(lambda number, wait_us: (waits.append(wait_us), (True, []))[1], host_us=3_000.0) == {}
    assert len(waits) == 2 * PARTS and max(waits) == LONGEST_WAIT_US


def test_a_sample_that_was_late_is_taken_again_after_a_longer_wait():
    wait, asked = HostWait.of_host(1_000.0), []
    spans = iter([("late", True), ("late", True), ("in time", False), ("in time", False)])
    assert [wait.take(lambda us: (asked.append(us), next(spans))[1]) for _ in range(2)] == ["in time"] * 2
    assert asked == [1_540.0, 3_080.0, 6_160.0, 6_160.0] and not wait.late


def test_a_call_that_is_always_late_is_not_waited_for_for_ever():
    wait, asked = HostWait.of_host(5_000.0), []
    for _ in range(LATE_TRIES + 6):
        assert wait.take(lambda us: (asked.append(us), ("late", True))[1]) == "late"
    assert wait.late == LATE_TRIES + 6 and len(asked) == LATE_TRIES * LATE_TRIES + 6
    assert max(asked) == LONGEST_WAIT_US
