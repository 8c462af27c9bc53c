"""The confirmed protocol's rules on made-up blocks: drift cancels, throttled blocks go, impossible times are named."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.kernel import targets
from kernelsearch.measure.timing import confirm_rules
from kernelsearch.measure.timing import paired_statistics as paired
from kernelsearch.measure.timing.nvml import Monitor, Reading, find_bus_id

TRUE_US = {"candidate": 100.0, "seed": 130.0, "eager": 250.0, confirm_rules.CONTROL: 130.0}


def sampled(order, clock, rng, drift, noise=0.003):
    """One block's times on a GPU that slows down by `drift` per sample."""
    block = []
    for name in order:
        clock[0] += 1
        block.append((name, TRUE_US[name] * (1 + drift * clock[0]) * math.exp(rng.gauss(0, noise))))
    return tuple(block)


def run(blocks, drift=0.0, seed=1, slow=(), noise=0.003):
    rng, clock = random.Random(seed), [0]
    return [
        sampled(confirm_rules.draw_order(list(TRUE_US), slow, i, rng), clock, rng, drift, noise) for i in range(blocks)
    ]


@given(st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1), st.integers(0, 50), st.integers(0, 9))
def test_a_block_reads_the_same_backwards_and_holds_everyone_twice(names, number, seed):
    order = confirm_rules.draw_order(names, (), number, random.Random(seed))
    assert order == order[::-1] and sorted(order) == sorted([*names, *names])


def test_orders_differ_and_slow_contestants_come_in_every_fourth_block():
    rng = random.Random(0)
    orders = [confirm_rules.draw_order(list(TRUE_US), ("eager",), i, rng) for i in range(40)]
    assert len(set(orders)) > 5
    assert [("eager" in o) for o in orders] == [i % 4 == 0 for i in range(40)]
    assert confirm_rules.find_slow({"a": 10.0, "b": 19.0, "c": 21.0}) == ("c",)


def test_a_known_ratio_is_found_under_heavy_drift():
    """1 % slower with every sample: unpaired times are off by far more than the interval is wide."""
    blocks = run(60, drift=0.01)
    found = paired.bootstrap_interval([confirm_rules.log_ratios_of(blocks, "candidate", "seed")])
    assert found.low <= 1.3 <= found.high and found.half_width < 0.005
    control = paired.bootstrap_interval([confirm_rules.log_ratios_of(blocks, confirm_rules.CONTROL, "seed")])
    assert control.low <= 1.0 <= control.high
    assert confirm_rules.time_of(blocks, "candidate").time_us > 150.0


def test_logs_pair_only_what_shares_a_block():
    blocks = [(("a", 10.0), ("b", 20.0), ("b", 20.0), ("a", 10.0)), (("a", 11.0), ("a", 11.0))]
    assert confirm_rules.log_ratios_of(blocks, "a", "b") == [pytest.approx(math.log(2))]
    assert confirm_rules.log_ratios_of(blocks, "a", "c") == [] and confirm_rules.time_of(blocks, "c") is None


COOL = Reading(1980, 2619, 45, 400.0, 0)
HOT = Reading(1980, 2619, 88, 400.0, 0x20)
SLOW = Reading(1500, 2619, 60, 700.0, 0x4)
CAPPED = Reading(1975, 2619, 60, 700.0, 0x4)


def test_throttled_blocks_are_dropped_and_the_rest_gives_the_true_ratio():
    good, spoiled = run(60), []
    for i, block in enumerate(good):
        slow = 10 <= i < 20  # the second half of a throttled block runs at half the speed
        spoiled.append(tuple((n, t * (2.0 if slow and j >= 4 else 1.0)) for j, (n, t) in enumerate(block)))
    edges = [(COOL, HOT if 10 <= i < 15 else SLOW if 15 <= i < 20 else COOL) for i in range(60)]
    kept = confirm_rules.drop_spoiled(spoiled, edges)
    assert kept.dropped == 10 and not kept.unstable
    assert kept.reasons == ("another SM clock", "software thermal slowdown")
    assert kept.blocks == tuple(good[:10] + good[20:])
    assert kept.clocks["sm_mhz"] == 1980 and kept.clocks["temperature"] == 88


def test_too_many_dropped_blocks_are_unstable():
    blocks = run(20)
    edges = [(COOL, HOT if i < 7 else COOL) for i in range(20)]
    assert confirm_rules.drop_spoiled(blocks, edges).unstable
    assert not confirm_rules.drop_spoiled(blocks, [(COOL, HOT if i < 6 else COOL) for i in range(20)]).unstable


def test_a_power_cap_that_holds_the_clock_steady_spoils_nothing_but_is_told():
    kept = confirm_rules.drop_spoiled(run(20), [(CAPPED, CAPPED)] * 20)
    assert kept.dropped == 0 and kept.clocks["power_capped"] == 1.0


def test_without_readings_every_block_counts():
    blocks = run(20)
    assert confirm_rules.drop_spoiled(blocks, [(None, None)] * 20) == confirm_rules.ValidBlocks(tuple(blocks))


def test_sampling_stops_when_the_intervals_are_narrow():
    blocks = run(200, noise=0.006)
    pairs = [("candidate", "seed"), (confirm_rules.CONTROL, "seed")]
    assert confirm_rules.are_narrow(blocks, pairs, 0.99) and not confirm_rules.are_narrow(blocks[:12], pairs, 0.99)
    assert not confirm_rules.are_narrow(blocks, [("candidate", "nobody")], 0.99)


def test_times_below_the_datasheet_are_impossible_and_l2_is_forgiven():
    h100 = targets.target_by_name("h100")
    read_and_written = 2 * 8192 * 8192 * 2
    least = confirm_rules.compute_floor_us(h100, read_and_written, 4 * 8192 * 8192, ("bf16",))
    assert least == pytest.approx((read_and_written - (50 << 20)) / 3350e3) and 60 < least < 80
    assert confirm_rules.compute_floor_us(h100, 40 << 20, None, ("fp32",)) == 0.0
    assert confirm_rules.compute_floor_us(h100, None, 2 * 4096**3, ("bf16",)) == pytest.approx(2 * 4096**3 / 989.4e6)
    assert confirm_rules.compute_floor_us(h100, None, None, ()) == 0.0


def test_the_roofline_is_of_this_device_and_knows_its_dtype():
    ceilings = {"copy_gbps": 3000.0, "matmul_bf16_tflops": 800.0, "matmul_fp32_tflops": 50.0, "empty_kernel_us": 2.0}
    assert confirm_rules.compute_roofline_us(ceilings, 300_000_000, 10, ("bf16",)) == pytest.approx(100.0)
    assert confirm_rules.compute_roofline_us(ceilings, 3 * 2 * 4096**2, 2 * 4096**3, ("bf16",)) == pytest.approx(
        2 * 4096**3 / 800e6
    )
    assert confirm_rules.compute_roofline_us({}, 300_000_000, 10, ("bf16",)) is None
    assert confirm_rules.is_launch_bound(5.9, ceilings) and not confirm_rules.is_launch_bound(6.1, ceilings)
    assert not confirm_rules.is_launch_bound(1.0, {})


def test_only_an_event_time_that_is_too_small_is_a_fault():
    assert confirm_rules.find_disagreement(100.0, 101.0, 95.0) == ""
    assert confirm_rules.find_disagreement(100.0, None, None) == ""
    assert confirm_rules.find_disagreement(100.0, 60.0, 60.0) == ""  # gaps between launches
    assert "wall clock" in confirm_rules.find_disagreement(10.0, 40.0, None)
    assert confirm_rules.find_disagreement(10.6, 16.5, 10.2) == ""  # the host is slower than the GPU
    assert "the host is slower" in confirm_rules.explain_slow_host(10.6, 16.5, 10.2)
    assert confirm_rules.explain_slow_host(10.6, 11.0, 10.2) == confirm_rules.explain_slow_host(10.6, 16.5, None) == ""
    assert "kernels' own" in confirm_rules.find_disagreement(10.0, 11.0, 40.0)


def test_a_missing_management_library_is_said(monkeypatch):
    import ctypes

    def refuse(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    monitor = Monitor.open("0000:18:00.0")
    assert (
        monitor.read() is None and monitor.busy_percent() is None and "NVML" in monitor.reason and find_bus_id() == ""
    )


def test_throttle_reasons_in_words():
    assert Reading(0, 0, 0, 0.0, 0x44).format_reasons() == ["software power cap", "hardware thermal slowdown"]
    assert COOL.format_reasons() == []
