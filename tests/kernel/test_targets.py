"""The table of machine facts is consistent, and a live device finds its row."""

import pytest

from kernelsearch.core.errors import TargetError
from kernelsearch.kernel.targets import _TARGETS, target_by_name, target_for_device, target_for_gfx
from kernelsearch.measure.timing.device import find_amd_card
from kernelsearch.trial import bench


@pytest.mark.parametrize("name", _TARGETS)
def test_facts_hang_together(name):
    t = target_by_name(name)
    assert t.arch in (75, 80, 86, 89, 90, 100, 120, "gfx942", "gfx950")
    assert t.shared_per_sm - t.shared_per_program == t.shared_reserved  # a program's own share of the SM
    assert t.tensor_tflops > t.tf32_tflops >= t.fp32_tflops * 0.9
    assert t.l2_bandwidth_gbps > t.bandwidth_gbps
    assert t.warps_per_sm >= t.programs_per_sm
    # the datasheet's float32 rate is SMs x lanes x 2 x clock, at 64 (T4, A100) or 128 lanes
    lanes = 64 if t.capability in (75, 80) else 128
    assert t.fp32_tflops == pytest.approx(t.num_sms * lanes * 2 * t.clock_ghz / 1e3, rel=0.15)


def test_unknown_names_are_answered_with_the_known_ones():
    with pytest.raises(TargetError, match="unknown target 'h1000'.*h100, h200, a100.*and auto"):
        target_by_name("h1000")


@pytest.mark.parametrize("device, capability, name", [
    ("NVIDIA H100 80GB HBM3", 90, "h100"), ("NVIDIA H200", 90, "h200"), ("NVIDIA A100-SXM4-80GB", 80, "a100"),
    ("NVIDIA L4", 89, "l4"), ("NVIDIA L40S", 89, "l40s"), ("NVIDIA GeForce RTX 4090", 89, "rtx4090"),
    ("NVIDIA GeForce RTX 5090", 120, "rtx5090"), ("NVIDIA RTX PRO 6000", 120, "rtx5090"), ("Tesla T4", 75, "t4"),
    ("NVIDIA A10G", 86, "a10g"), ("AMD Instinct MI300X", 0, "mi300x"), ("NVIDIA B200", 100, "b200"),
    ("NVIDIA GH200 480GB", 90, "h200"), ("NVIDIA A40", 80, "a100"),
])  # fmt: skip
def test_live_devices(device, capability, name):
    assert target_for_device(device, capability).name == name


@pytest.mark.parametrize("device, capability", [("Tesla V100", 70), ("NVIDIA GeForce RTX 3090", 86), ("a card", 94)])
def test_a_device_without_facts(device, capability):
    with pytest.raises(TargetError, match=str(capability / 10)):
        target_for_device(device, capability)


def test_8_bit_floats_in_hardware():
    ours, theirs = ("float8_e4m3fn", "float8_e5m2"), ("float8_e4m3fnuz", "float8_e5m2fnuz")
    kinds = {"a100": (), "t4": (), "a10g": (), "l4": ours, "rtx5090": ours, "mi300x": theirs, "mi355x": ours}
    assert {name: target_by_name(name).fp8 for name in kinds} == kinds


def test_an_amd_card_is_found_by_its_architecture(tmp_path, monkeypatch):
    assert find_amd_card(tmp_path) == ""
    for number, version in enumerate((0, 90010, 90402)):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "properties").write_text(f"simd_count 4\ngfx_target_version {version}\n")
    (tmp_path / "9" / "properties").mkdir(parents=True)  # cannot be read
    assert find_amd_card(tmp_path) == "gfx90a" and target_for_gfx("gfx90a") is target_for_gfx("") is None
    monkeypatch.setattr(bench, "find_live_device", lambda: None)
    monkeypatch.setattr(bench, "find_amd_card", lambda: "gfx950")
    assert bench.choose_target("auto") == (target_by_name("mi355x"), None)
