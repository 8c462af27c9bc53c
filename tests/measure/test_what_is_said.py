"""Sentences about the GPU and the model: in use by others, its own rates, how wrong estimates were."""

from dataclasses import replace

import pytest

from kernelsearch.kernel import targets
from kernelsearch.measure.static_model.known_error import KNOWN_ERROR, KNOWN_ERROR_TEXT, SHORT_TEXT
from kernelsearch.measure.static_model.rates import CEILINGS, calibrate_target
from kernelsearch.measure.timing import confirm_rules as protocol
from kernelsearch.measure.timing.nvml import BUSY_PERCENT, Reading, format_busy_note

H100 = targets.target_by_name("h100")


@pytest.mark.parametrize(
    ("percent", "said"), [(None, False), (0, False), (BUSY_PERCENT, False), (BUSY_PERCENT + 1, True), (100, True)]
)
def test_a_gpu_that_others_use_is_said_with_what_to_do(percent, said):
    note = format_busy_note(percent)
    assert bool(note) == said
    assert not said or (f"{percent} %" in note and "CUDA_VISIBLE_DEVICES" in note)


def test_measured_rates_replace_the_datasheets_and_nothing_else():
    found = calibrate_target(H100, {"copy_gbps": 3000.0, "matmul_bf16_tflops": 800.0, "launch_us": 9.0})
    assert (found.bandwidth_gbps, found.tensor_tflops) == (3000.0, 800.0)
    assert replace(found, bandwidth_gbps=H100.bandwidth_gbps, tensor_tflops=H100.tensor_tflops) == H100
    assert calibrate_target(H100, {}) == H100 and calibrate_target(H100, {"copy_gbps": 0.0}) == H100
    assert set(CEILINGS) <= set(vars(H100))


def test_impossible_times_are_judged_by_the_datasheet_not_by_what_was_measured():
    slow = calibrate_target(H100, {"copy_gbps": 1000.0})
    size = 1 << 30
    assert protocol.compute_floor_us(H100, size, None, ("fp32",)) < 0.5 * protocol.compute_floor_us(
        slow, size, None, ("fp32",)
    )


def test_a_changed_clock_and_a_hot_gpu_are_named():
    cool = Reading(1980, 2619, 40, 300.0, 0)
    blocks = [(("a", 1.0), ("a", 1.0))] * 9
    edges = [(cool, cool)] * 5 + [(cool, replace(cool, sm_mhz=1200))] * 2 + [(cool, replace(cool, reasons=0x40))] * 2
    kept = protocol.drop_spoiled(blocks, edges)
    assert kept.dropped == 4 and kept.unstable
    assert kept.reasons == ("another SM clock", "hardware thermal slowdown")


def test_the_known_error_is_numbers_with_a_source():
    (low, high), (least, most) = KNOWN_ERROR["spearman"], KNOWN_ERROR["ratio"]
    assert f"{low:.2f} to {high:.2f}" in KNOWN_ERROR_TEXT and KNOWN_ERROR["source"] in KNOWN_ERROR_TEXT
    median = f"{KNOWN_ERROR['median']:.2f}"
    assert len(SHORT_TEXT) < 100 and median in SHORT_TEXT and "kernelsearch help trust" in SHORT_TEXT
    assert -1 <= low <= high <= 1 and 0 < least <= most
