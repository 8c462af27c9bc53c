"""How often loops run is counted in every program from the launch's own numbers: what is known is not guessed."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from triton import knobs

from kernelsearch.compile.build import Built, build
from kernelsearch.compile.code import Loop, fold
from kernelsearch.core.types import TensorFact
from kernelsearch.kernel.launch import Specialisation
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.measure.static_model import trips
from kernelsearch.measure.static_model.device_launch import DeviceLaunch
from kernelsearch.measure.static_model.estimate import estimate_launch
from kernelsearch.measure.static_model.occupancy import BinaryResources

H100 = target_by_name("h100")
HEAD = """import triton
import triton.language as tl


@triton.jit
def k(x_ptr, y_ptr, rows, BR: tl.constexpr):
    c = tl.arange(0, 256)
    acc = tl.zeros((256,), dtype=tl.float32)
    p = tl.program_id(0)
"""
END = """
    tl.store(y_ptr + p * 256 + c, acc)
"""
ADD = "acc += tl.load(x_ptr + ({at}) * 256 + c)"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The binary of a body, with BR = 8."""
    kept = {}

    def make(body):
        if body not in kept:
            pointers = (("x_ptr", "*fp32"), ("y_ptr", "*fp32"))
            signature = (*pointers, ("rows", "i32"), ("BR", "constexpr"))
            spec = Specialisation(
                "k", signature, (("BR", 8),), ("x_ptr", "y_ptr"), (("num_stages", 3), ("num_warps", 4))
            )
            kept[body] = build(HEAD + body + END, "k", spec, H100.capability, H100.shared_per_program)
            assert isinstance(kept[body], Built), kept[body]
        return kept[body].binary

    with knobs.cache.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(tmp_path_factory.mktemp("cache"))
        knobs.compilation.disable_line_info = True
        yield make


def launched(binary, rows, programs):
    machine = BinaryResources(binary.num_warps, binary.registers, binary.stack_bytes, binary.shared, binary.mix, 3)
    facts = {name: TensorFact("fp32", (n, 256), (256, 1)) for name, n in (("x_ptr", rows), ("y_ptr", programs))}
    return DeviceLaunch("k", machine, binary.code, (programs, 1, 1), {**facts, "rows": rows}, H100)


def ceil(length, step):
    return max(0, -(-length // step))


CASES = {
    "to the end from a start of its own": (
        f"    for r in range(0, rows - p * 512, BR):\n        {ADD.format(at='p * 512 + r')}",
        lambda p, n, rows: [ceil(rows - p * 512, 8)],
    ),
    "what a counted loop left over": (
        f"    first = 0\n    for r in range(0, rows // 64):\n        {ADD.format(at='first')}\n        first += 64\n"
        f"    for r in range(0, rows - first, 1):\n        {ADD.format(at='first + r')}",
        lambda p, n, rows: [rows // 64, rows % 64],
    ),
    "what whole tiles left over": (
        f"    whole = rows // BR * BR\n    for r in range(0, whole, BR):\n        {ADD.format(at='r')}\n"
        f"    for r in range(whole, rows, 1):\n        {ADD.format(at='r')}",
        lambda p, n, rows: [rows // 8, rows % 8],
    ),
    "its share of the work": (
        f"    for r in range(p, rows, tl.num_programs(0)):\n        {ADD.format(at='r')}",
        lambda p, n, rows: [ceil(rows - p, n)],
    ),
    "a triangle": (
        f"    for r in range(0, tl.minimum(rows, p * 64 + 64), BR):\n        {ADD.format(at='r')}",
        lambda p, n, rows: [ceil(min(rows, p * 64 + 64), 8)],
    ),
    "its share of a triangle": (
        "    for t in range(p, rows // 8, tl.num_programs(0)):\n"
        f"        for r in range(0, t, BR):\n            {ADD.format(at='t + r')}",
        lambda p, n, rows: [ceil(rows // 8 - p, n), sum(ceil(t, 8) for t in range(p, rows // 8, n))],
    ),
    "a while with a counter": (
        f"    r = p\n    while r < rows:\n        {ADD.format(at='r')}\n        r += BR",
        lambda p, n, rows: [ceil(rows - p, 8)],
    ),
    "one of two lengths": (
        f"    end = tl.where(p < 3, rows, 16)\n    for r in range(0, end, BR):\n        {ADD.format(at='r')}",
        lambda p, n, rows: [ceil(rows if p < 3 else 16, 8)],
    ),
    "a loop inside that is unrolled": (
        "    for t in range(p, rows, tl.num_programs(0)):\n"
        f"        for r in range(0, 4):\n            {ADD.format(at='t * 4 + r')}",
        lambda p, n, rows: [ceil(rows - p, n)],
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("rows", "programs"), [(4096, 5), (4099, 132), (1, 7)])
def test_loops_run_as_often_as_their_bounds_say(compiled, name, rows, programs):
    body, exact = CASES[name]
    launch = launched(compiled(body), rows, programs)
    _, *inner = launch.code.blocks
    counted = [exact(p, programs, rows) for p in range(programs)]
    assert [launch.trips_of(block.loops) for block in inner] == pytest.approx(
        [sum(column) / programs for column in zip(*counted, strict=True)]
    )
    assert not launch.extrapolates or name == "its share of a triangle"


def test_a_loop_that_is_never_taken_costs_nothing(compiled):
    left_over, _ = CASES["what a counted loop left over"]
    without = left_over.partition("    for r in range(0, rows - first")[0]
    times = [estimate_launch(launched(compiled(body), 4096, 132)).time_us for body in (left_over, without)]
    assert times[0] < 1.1 * times[1]


def test_persistent_programs_do_the_work_of_all(compiled):
    """Two loads for each of 65,536 rows take as long by 264 programs as their latency says, not one row of each."""
    body, _ = CASES["a loop inside that is unrolled"]
    launch = launched(compiled(body), 65536, 264)
    found = estimate_launch(launch)
    assert found.parts_us["memory"] > 10 and found.parts_us["latency"] > 10


def test_a_length_that_is_data_is_said(compiled):
    body = f"    n = tl.load(x_ptr).to(tl.int32)\n    for r in range(0, n, BR):\n        {ADD.format(at='r')}"
    launch = launched(compiled(body), 4096, 5)
    assert "a loop's length depends on data" in launch.extrapolates
    assert "a loop's length depends on data" in estimate_launch(launch).extrapolates


@given(st.integers(-50, 50), st.integers(-50, 50).filter(bool))
def test_divisions_round_as_the_machine_does(a, b):
    assert fold("//", a, b) == math.trunc(a / b) and fold("%", a, b) == math.fmod(a, b)
    assert fold("cdiv", a, b) == math.ceil(a / b)
    assert fold("min", a, b) == min(a, b) and fold("max", a, b) == max(a, b)
    assert fold("//", a, 0) is None


def test_a_large_grid_is_sampled_without_bias(monkeypatch):
    loops = (Loop(("pid", 0), 1 << 12, ("grid", 0)), Loop(0, ("turn", 0), 1))
    exact = trips.count_trips(loops, (64, 1, 1), lambda name: None)
    monkeypatch.setattr(trips, "MOST", 1 << 8)
    assert trips.count_trips(loops, (64, 1, 1), lambda name: None) == pytest.approx(exact, rel=0.02)
    wide = (Loop(0, ("%", ("pid", 0), 8), 1),)
    assert trips.count_trips(wide, (1 << 16, 1, 1), lambda name: None) == pytest.approx(3.5, rel=0.1)
