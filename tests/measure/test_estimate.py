"""The static model orders machines, sizes and binaries as physics does; it is never below the roofline."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelsearch.compile.code import Access, Block, Code, Dot, InstructionCounts, Loop
from kernelsearch.core.types import TensorFact
from kernelsearch.kernel.targets import _TARGETS, target_by_name
from kernelsearch.measure.static_model.counts import LaunchCounts
from kernelsearch.measure.static_model.device_launch import DeviceLaunch
from kernelsearch.measure.static_model.estimate import estimate_call, estimate_launch
from kernelsearch.measure.static_model.fitted import FITTED
from kernelsearch.measure.static_model.occupancy import BinaryResources, compute_programs_per_sm
from kernelsearch.measure.static_model.usage import compute_usage
from kernelsearch.measure.timing.device import find_live_device
from kernelsearch.measure.timing.protocol import compute_spread_us
from static_model.fitting import BOUNDS

H100 = target_by_name("h100")
PLAIN = BinaryResources(
    num_warps=4, registers=64, stack_bytes=0, shared=0, mix=InstructionCounts(loads={16: 1}, stores={16: 1})
)


def tensor(rows, cols, dtype="fp32"):
    return TensorFact(dtype, (rows, cols), (cols, 1))


def row_kernel(rows, cols, target=H100, machine=PLAIN, vector=16, special=0, **counts):
    """A kernel that reads and writes a float32 matrix once, a program a row; vector is in bytes a thread and access."""
    threads = 32 * machine.num_warps
    bytes_each = max(4, 4 * cols // threads)
    accesses = max(1, bytes_each // vector)
    plain = 6 * bytes_each // 4 + 4 * accesses
    block = Block(
        (),
        {"instructions": plain + 2 * accesses + special, "load": accesses, "store": accesses, "load_bytes": bytes_each,
         "store_bytes": bytes_each, "special": special, "shuffle": 5, "barrier": 2},
        {"load": 1, "arith": 20, "shuffle": 5, "barrier": 2, "special": min(1, special)},
    )  # fmt: skip
    code = Code(
        (Access("load", "x", 4, (cols,), (1,), (), 1), Access("store", "y", 4, (cols,), (1,), (), 2)), blocks=(block,)
    )
    args = {"x": tensor(rows, cols), "y": tensor(rows, cols)}
    return DeviceLaunch("rows", machine, code, (rows, 1, 1), args, target, {}, **counts)


def matmul(m, n, k, tile=(128, 128, 64), kind="wgmma", ahead=2, warps=8, target=H100):
    """A product of bf16 matrices: a loop over k, its copies so many iterations ahead."""
    bm, bn, bk = tile
    loop = (Loop(0, k, bk),)
    per_thread = (bm + bn) * bk * 2 // (32 * warps)
    macs = {"wgmma": bm * bn * bk * 4 // warps, "mma": bm * bn * bk // warps}.get(kind, 0)
    counts = {"instructions": 60, "copy": per_thread // 16, "load_bytes": per_thread, "barrier": 1}
    if kind in ("wgmma", "mma"):
        counts |= {kind: max(1, bk // 16), f"{kind}_macs": macs, f"{kind}_n": bn * max(1, bk // 16)}
    else:
        counts["instructions"] += bm * bn * bk // (32 * warps)
    code = Code(
        (Access("load", "a", 2, (bm, bk), (k, 1), loop, 1), Access("load", "b", 2, (bk, bn), (n, 1), loop, 2),
         Access("store", "c", 2, (bm, bn), (n, 1), (), 3)),
        (Dot(bm, bn, bk, "bf16", False, loop),),
        blocks=(Block((), {"instructions": 200}), Block(loop, counts, {"barrier": 1, "wgmma": 1}, ahead)),
    )  # fmt: skip
    machine = BinaryResources(
        warps, 128, 0, (bm + bn) * bk * 2 * (ahead + 2), InstructionCounts(counts={kind: 1, "cp_async": 1})
    )
    args = {"a": tensor(m, k, "bf16"), "b": tensor(k, n, "bf16"), "c": tensor(m, n, "bf16")}
    return DeviceLaunch("matmul", machine, code, (-(-m // bm) * -(-n // bn), 1, 1), args, target)


sizes = st.integers(1, 4096)


@given(sizes, st.integers(7, 15), st.sampled_from(list(_TARGETS)))
def test_no_estimate_is_below_the_roofline(rows, power, name):
    target = target_by_name(name)
    found = estimate_launch(row_kernel(rows, 2**power, target))
    assert found.time_us >= 8 * rows * 2**power / (target.bandwidth_gbps * 1e3)
    assert found.time_us >= target.launch_us and found.bottleneck in found.parts_us
    assert found.waves == pytest.approx(rows / (target.num_sms * found.occupancy))


@given(st.integers(7, 12), st.integers(7, 12), st.integers(7, 12))
def test_no_matmul_is_faster_than_the_tensor_cores(m, n, k):
    launch = matmul(2**m, 2**n, 2**k)
    assert estimate_launch(launch).time_us >= launch.flops / (H100.tensor_tflops * 1e6)


@given(sizes, st.integers(7, 14))
def test_twice_the_rows_never_take_less_time(rows, power):
    once, twice = (estimate_launch(row_kernel(n, 2**power)).time_us for n in (rows, 2 * rows))
    assert twice >= 0.95 * once


def test_what_makes_a_row_kernel_slower():
    base = estimate_launch(row_kernel(8192, 8192)).time_us
    assert estimate_launch(row_kernel(8192, 8192, vector=2)).time_us > base
    assert estimate_launch(row_kernel(8192, 8192, special=4000)).bottleneck == "special"
    spilled = row_kernel(8192, 8192, machine=replace(PLAIN, stack_bytes=4096))
    assert estimate_launch(spilled).time_us > base
    for name in ("a100", "l4"):
        assert estimate_launch(row_kernel(8192, 8192, target_by_name(name))).time_us > base


def test_registers_that_cannot_hold_a_tile_make_its_loads_wait():
    loop = (Loop(0, 1 << 16, 64),)
    block = Block(loop, {"instructions": 80, "load": 16, "load_bytes": 256}, {"load": 1, "arith": 4}, carried=256.0)
    code = Code((Access("load", "x", 4, (64, 128), (128, 1), loop, 1),), blocks=(Block(), block))
    args = {"x": tensor(1 << 16, 128)}
    wide, narrow = (
        DeviceLaunch("k", replace(PLAIN, registers=n), code, (64, 1, 1), args, H100) for n in (200, 88)
    )  # fmt: skip
    assert compute_usage(wide).steps[1].batches <= 1 < compute_usage(narrow).steps[1].batches
    assert estimate_launch(narrow).time_us > 1.5 * estimate_launch(wide).time_us


def test_a_second_pass_costs_only_where_l2_has_lost_the_row():
    def passes(rows, cols, count):
        loop = (Loop(0, cols, 1024),)
        accesses = tuple(Access("load", "x", 4, (1024,), (1,), loop, 1) for _ in range(count))
        blocks = (Block(), *(Block(loop, {"instructions": 40, "load": 2, "load_bytes": 32}, {"load": 1}),) * count)
        return DeviceLaunch("k", PLAIN, Code(accesses, blocks=blocks), (rows, 1, 1), {"x": tensor(rows, cols)}, H100)

    again = compute_usage(passes(2048, 1 << 16, 2)).again
    assert again == pytest.approx(4 * 2048 * (1 << 16)) and compute_usage(passes(2048, 1 << 16, 1)).again == 0
    parts = [
        estimate_launch(passes(rows, cols, 2)).parts_us["dram"]
        for rows, cols in ((1 << 17, 1 << 10), (1 << 11, 1 << 16))
    ]
    assert parts[1] > 1.6 * parts[0]  # the same bytes, in rows that are too long for what all programs keep


def test_a_weight_that_fits_l1_is_not_asked_of_l2_by_every_program():
    launch = row_kernel(65536, 1024)
    weight = replace(launch, args={**launch.args, "x": tensor(1, 1024)})
    assert compute_usage(weight).requested < 0.6 * compute_usage(launch).requested


def test_matrix_instructions_and_copies_ahead_matter():
    by = {kind: estimate_launch(matmul(4096, 4096, 4096, kind=kind)).time_us for kind in ("wgmma", "mma", "none")}
    assert by["wgmma"] < by["mma"] < by["none"]
    assert estimate_launch(matmul(4096, 4096, 4096, ahead=0)).time_us > 1.1 * by["wgmma"]
    assert estimate_launch(matmul(4096, 4096, 4096, tile=(64, 64, 64))).time_us > 1.5 * by["wgmma"]


def test_a_single_program_takes_longer_per_row_than_many():
    one, many = (estimate_launch(row_kernel(n, 4096)).time_us - H100.launch_us for n in (1, 132))
    assert many < 3 * one


def test_counts_of_sampled_programs_correct_the_bytes():
    counts = LaunchCounts("k", 8192, load_bytes=4e6, store_bytes=4e6, footprint_bytes=8e6)
    launch = row_kernel(8192, 8192)
    assert compute_usage(replace(launch, counts=counts)).footprint == 8e6 < compute_usage(launch).footprint


def test_a_binary_whose_texts_were_not_understood_is_estimated_all_the_same():
    launch = row_kernel(8192, 8192)
    blind = replace(launch, code=replace(launch.code, blocks=()))
    assert estimate_launch(blind).time_us >= 8 * 8192 * 8192 / (H100.bandwidth_gbps * 1e3)
    assert estimate_launch(replace(launch, code=Code())).time_us > 0


def test_the_constants_are_within_their_physical_bounds():
    assert set(BOUNDS) == set(vars(FITTED))
    for name, (low, high) in BOUNDS.items():
        assert low <= getattr(FITTED, name) <= high, name


@pytest.mark.parametrize("machine, programs", [
    (replace(PLAIN, registers=32), 16),                # 64 warps / 4
    (replace(PLAIN, registers=32, num_warps=1), 32),   # the limit of programs
    (replace(PLAIN, registers=128), 4),                # 65536 / (128 * 32 * 4)
    (replace(PLAIN, registers=33), 12),                # allocated by 256 a warp: 40 registers
    (replace(PLAIN, registers=32, shared=100 << 10), 2),   # (228 << 10) / (101 << 10)
    (replace(PLAIN, shared=227 << 10), 1),
    (replace(PLAIN, num_warps=32, registers=255), 1),  # never none
])  # fmt: skip
def test_occupancy_by_the_cuda_rules(machine, programs):
    assert compute_programs_per_sm(machine, H100) == programs


def test_a_call_is_its_launches_one_after_the_other():
    one = row_kernel(128, 1024)
    total, parts = estimate_call([one, one])
    assert len(parts) == 2 and total == pytest.approx(2 * parts[0].time_us)
    assert estimate_call([]) == (0, ())


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=40))
def test_spread_is_within_the_range(times):
    assert 0 <= compute_spread_us(times) <= (max(times) - min(times)) + 1e-9


def test_spread_is_half_the_distance_of_the_quartiles():
    assert compute_spread_us([1, 2, 3, 4, 5, 6, 7]) == 2.0
    assert compute_spread_us([]) == 0.0 and compute_spread_us([5.0]) == 0.0 and compute_spread_us([4.0, 6.0]) == 1.0


def test_the_device_is_asked_without_torch():
    found = find_live_device()
    assert found is None or (found.capability >= 70 and found.num_sms > 0 and found.name)
