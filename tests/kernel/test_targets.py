"""The table of machine facts is consistent, and a live device finds its row."""

import pytest

from kernelsearch.core.errors import TargetError
from kernelsearch.kernel.targets import _TARGETS, target_by_name, target_for_device


@pytest.mark.parametrize("name", _TARGETS)
def test_facts_hang_together(name):
    t = target_by_name(name)
    assert t.capability in (80, 89, 90, 100)
    assert t.shared_per_program < t.shared_per_sm  # a program's own share of the SM: 1 KiB is reserved
    assert t.shared_per_sm - t.shared_per_program == 1024
    assert t.tensor_tflops > t.tf32_tflops >= t.fp32_tflops * 0.9
    assert t.l2_bandwidth_gbps > t.bandwidth_gbps
    assert t.warps_per_sm >= t.programs_per_sm
    # the datasheet's float32 rate is SMs x lanes x 2 x clock, at 64 (A100) or 128 lanes
    lanes = 64 if t.capability == 80 else 128
    assert t.fp32_tflops == pytest.approx(t.num_sms * lanes * 2 * t.clock_ghz / 1e3, rel=0.15)


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(TargetError, match="unknown target 'h1000'.*h100, h200, a100.*and auto"):
        target_by_name("h1000")


@pytest.mark.parametrize("device, capability, name", [
    ("NVIDIA H100 80GB HBM3", 90, "h100"), ("NVIDIA H200", 90, "h200"), ("NVIDIA A100-SXM4-80GB", 80, "a100"),
    ("NVIDIA L4", 89, "l4"), ("NVIDIA L40S", 89, "l40s"), ("NVIDIA GeForce RTX 4090", 89, "rtx4090"),
    ("NVIDIA B200", 100, "b200"), ("NVIDIA GH200 480GB", 90, "h200"), ("NVIDIA A40", 80, "a100"),
])  # fmt: skip
def test_live_devices(device, capability, name):
    assert target_for_device(device, capability).name == name


def test_a_device_without_facts():
    with pytest.raises(TargetError, match="7.5"):
        target_for_device("Tesla T4", 75)
