"""The static model orders machines, sizes and binaries as physics does; it is never below the roofline."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.measure.counts import Counts
from kernelsearch.measure.device import live_device
from kernelsearch.measure.estimate import Machine, estimate_call, estimate_launch, programs_per_sm
from kernelsearch.measure.protocol import spread_us
from kernelsearch.mix import Mix
from kernelsearch.targets import named, names

H100 = named("h100")
WIDE = Mix(loads={16: 4}, stores={16: 4}, total=100, parameters=3)
PLAIN = Machine(num_warps=4, registers=32, stack_bytes=0, shared=0, mix=WIDE)


def row_kernel(rows, cols, width=4):
    """A kernel that reads and writes a matrix once, one program a row."""
    size = rows * cols * width
    return Counts("k", rows, size, size, 2 * size, elements=4.0 * rows * cols, special=rows * cols, reductions=2.0 * rows,
                  loads=rows, load_elements=rows * cols, tile=cols)  # fmt: skip


def matmul(m, n, k, tile=(128, 128, 64)):
    programs = (m // tile[0]) * (n // tile[1])
    loaded = programs * k * (tile[0] + tile[1]) * 2
    return Counts("mm", programs, loaded, m * n * 2, 2 * (m * k + k * n + m * n), {"16": 2.0 * m * n * k}, elements=m * n,
                  loads=2.0 * programs * k / tile[2], load_elements=loaded / 2, iterations=k / tile[2], tile=tile[0] * tile[1])  # fmt: skip


sizes = st.integers(1, 4096)


@given(sizes, st.integers(5, 15), st.sampled_from(names()))
def test_no_estimate_is_below_the_roofline(rows, power, name):
    target, counts = named(name), row_kernel(rows, 2**power)
    found = estimate_launch(counts, PLAIN, target)
    assert found.time_us >= counts.footprint_bytes / (target.bandwidth_gbps * 1e3)
    assert found.time_us >= target.launch_us and found.bottleneck in found.parts_us
    assert found.waves == pytest.approx(rows / (target.num_sms * found.occupancy))


@given(st.integers(7, 11), st.integers(7, 11), st.integers(7, 12))
def test_no_matmul_is_faster_than_the_tensor_cores(m, n, k):
    counts = matmul(2**m, 2**n, 2**k)
    machine = replace(PLAIN, num_warps=8, registers=128, shared=96 << 10, mix=Mix(loads={16: 4}, counts={"wgmma": 4, "cp_async": 8}))
    assert estimate_launch(counts, machine, H100).time_us >= counts.flops_dot["16"] / (H100.tensor_tflops * 1e6)


@given(sizes, st.integers(6, 14))
def test_twice_the_rows_never_take_less_time(rows, power):
    """Within the model's own waves: a launch with more of the same programs is never estimated as shorter by much."""
    once, twice = (estimate_launch(row_kernel(n, 2**power), PLAIN, H100).time_us for n in (rows, 2 * rows))
    assert twice >= 0.85 * once


def test_what_makes_a_kernel_slower():
    counts = row_kernel(8192, 8192, 2)
    base = estimate_launch(counts, PLAIN, H100).time_us
    narrow = replace(PLAIN, mix=Mix(loads={2: 32}, stores={2: 32}))
    assert estimate_launch(counts, narrow, H100).time_us > base
    assert estimate_launch(counts, replace(PLAIN, stack_bytes=512), H100).time_us > base
    for name in ("a100", "l4"):
        assert estimate_launch(counts, PLAIN, named(name)).time_us > base
    assert estimate_launch(replace(counts, special=1e12), PLAIN, H100).bottleneck == "special"


def test_matrix_instructions_matter():
    counts = matmul(4096, 4096, 4096)
    machine = replace(PLAIN, num_warps=8, registers=128, shared=96 << 10)
    by = {kind: estimate_launch(counts, replace(machine, mix=Mix(loads={16: 4}, counts=c)), H100).time_us
          for kind, c in {"wgmma": {"wgmma": 1}, "mma": {"mma": 1}, "none": {}}.items()}  # fmt: skip
    assert by["wgmma"] < by["mma"] < by["none"]
    one_stage = replace(machine, num_stages=1, mix=Mix(loads={16: 4}, counts={"wgmma": 1}))
    assert estimate_launch(counts, one_stage, H100).time_us > by["wgmma"]


@pytest.mark.parametrize("machine, programs", [
    (PLAIN, 16),                                       # 64 warps / 4
    (replace(PLAIN, num_warps=1), 32),                 # the limit of programs
    (replace(PLAIN, registers=128), 4),                # 65536 / (128 * 32 * 4)
    (replace(PLAIN, registers=33), 12),                # allocated by 256 a warp: 40 registers
    (replace(PLAIN, shared=100 << 10), 2),             # (228 << 10) / (101 << 10)
    (replace(PLAIN, shared=227 << 10), 1),
    (replace(PLAIN, num_warps=32, registers=255), 1),  # never none
])  # fmt: skip
def test_occupancy_by_the_cuda_rules(machine, programs):
    assert programs_per_sm(machine, H100) == programs


def test_a_call_is_its_launches_one_after_the_other():
    one = (row_kernel(128, 1024), PLAIN)
    total, parts = estimate_call([one, one], H100)
    assert len(parts) == 2 and total == pytest.approx(2 * parts[0].time_us)
    assert estimate_call([], H100) == (0, ())


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=40))
def test_spread_is_within_the_range(times):
    assert 0 <= spread_us(times) <= (max(times) - min(times)) + 1e-9


def test_spread_is_half_the_distance_of_the_quartiles():
    assert spread_us([1, 2, 3, 4, 5, 6, 7]) == 2.0
    assert spread_us([]) == 0.0 and spread_us([5.0]) == 0.0 and spread_us([4.0, 6.0]) == 1.0


def test_the_device_is_asked_without_torch():
    found = live_device()
    assert found is None or (found.capability >= 70 and found.num_sms > 0 and found.name)
