"""Bytes under way, by the model's rules, explain times that were measured on an H100 (studies/hints/findings.md)."""

from dataclasses import replace

import pytest

from kernelsearch.compile.code import Access, Code, Exchange, InstructionCounts, Loop
from kernelsearch.core.types import TensorFact
from kernelsearch.kernel import targets
from kernelsearch.measure.static_model.device_launch import BinaryResources, DeviceLaunch
from kernelsearch.measure.static_model.rates import calibrate_target

H100 = calibrate_target(targets.target_by_name("h100"), {"copy_gbps": 3005.0})
NAMES = {2: "bf16", 4: "fp32"}


def loop(tile):
    return (Loop(0, ("arg", "n"), tile),)


def rows(width, tile, warps, reduced, shape=(65536, 4096), **machine):
    """A program a row, tiles of so many elements, each reduced at once or kept a lane."""
    load = Access("load", "x", width, (tile,), (1,), loop(tile), 1)
    args = {"x": TensorFact(NAMES[width], shape, (shape[1], 1)), "n": shape[1]}
    binary = replace(BinaryResources(warps, 32, 0, 0, InstructionCounts(loads={4: 1})), **machine)
    code = Code((load,), reduced=(loop(tile),) if reduced else ())
    return DeviceLaunch("k", binary, code, (shape[0], 1, 1), args, H100)


MEASURED = [
    # width, tile, warps, reduced, shape, microseconds
    (4, 64, 1, False, (65536, 4096), 357.4), (4, 32, 1, False, (65536, 4096), 377.3),
    (4, 128, 4, False, (65536, 4096), 354.9), (4, 1024, 4, False, (65536, 4096), 353.2),
    (4, 64, 2, True, (65536, 4096), 622.2), (4, 128, 4, True, (65536, 4096), 637.6),
    (4, 256, 4, True, (65536, 4096), 406.2), (4, 512, 4, True, (65536, 4096), 356.8),
    (4, 128, 1, True, (65536, 4096), 357.6), (2, 32, 1, False, (65536, 4096), 254.4),
    (2, 128, 4, False, (65536, 4096), 202.9), (2, 128, 4, True, (65536, 4096), 605.2),
    (2, 256, 4, True, (65536, 4096), 329.6), (4, 2048, 4, False, (132, 2 << 20), 949.2),
    (4, 1024, 4, False, (132, 2 << 20), 960.3), (4, 2048, 4, False, (528, 1 << 19), 406.3),
]  # fmt: skip


@pytest.mark.parametrize(("width", "tile", "warps", "reduced", "shape", "time_us"), MEASURED)
def test_littles_law_with_ptxas_unrolling_explains_the_times(width, tile, warps, reduced, shape, time_us):
    launch = rows(width, tile, warps, reduced, shape)
    predicted = launch.dram_us * max(1.0, launch.bytes_needed_in_flight / launch.bytes_in_flight)
    assert time_us / 1.4 < predicted < time_us * 1.4


def test_a_barrier_in_the_loop_ends_what_runs_ahead():
    assert rows(4, 128, 4, False).iterations_ahead(loop(128)) == 4
    assert rows(4, 128, 4, True).iterations_ahead(loop(128)) == 1
    assert rows(4, 128, 1, True).iterations_ahead(loop(128)) == 4  # one warp waits for nobody
    code = Code((), exchanges=(Exchange("load", 1.0, 512, loop(128)),))
    exchange = replace(rows(4, 128, 4, False), code=code)
    assert exchange.iterations_ahead(loop(128)) == 1


def test_wide_bodies_are_not_unrolled_and_copies_run_ahead_by_their_stages():
    assert [rows(4, 128 * n, 4, False).iterations_ahead(loop(128 * n)) for n in (1, 4, 8, 16, 32)] == [4, 4, 2, 1, 1]
    copying = rows(4, 4096, 4, False, mix=InstructionCounts(counts={"cp_async": 4}), num_stages=4)
    assert copying.iterations_ahead(loop(4096)) == 3
    assert rows(4, 128, 4, False).iterations_ahead(()) == 1
