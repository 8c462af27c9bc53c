"""The search protocol takes other samples where the device waited for the host, and says so when it cannot."""

import statistics

import pytest

pytest.importorskip("torch")

from kernelsearch.measure.timing import events
from kernelsearch.measure.timing.events import MAX_LATE, TimedSpan, collect_samples


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
    assert device.waits[:3] == [180.0, 360.0, 720.0] and set(device.waits[2:]) == {720.0}
    assert samples.detail == {"host_us": 100.0, "late": 4}


def test_a_call_that_is_always_late_keeps_its_times_and_says_so():
    device = Device(300.0, late=lambda n: True)
    samples = collect_samples(device.take, host_us=1_900.0)
    assert samples.times_us == (5_300.0,) * MAX_LATE
    assert samples.detail == {"host_us": 1_900.0, "host_bound": True}
    assert max(device.waits) == events.LONGEST_WAIT_US


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
