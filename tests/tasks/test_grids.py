"""Tuples of the launcher's that follow a tile."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kernelsearch.core.types import LaunchFact, TensorFact, Trace
from kernelsearch.kernel.source import Kernel
from kernelsearch.tasks import grids
from kernelsearch.tasks import space as spaces

TEXT = """import triton
import triton.language as tl


@triton.jit
def copy(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""


def launch(n: int, grid: tuple[int, ...] | None, block: int = 128) -> LaunchFact:
    x = TensorFact("fp32", (3, n), (n, 1))
    return LaunchFact("copy", {"x_ptr": x, "y_ptr": x, "n": n, "BLOCK": block}, grid=grid)


@pytest.mark.parametrize(
    "launches, wanted",
    [
        ([launch(1000, (8,)), launch(70, (1,))], "(cdiv(n, BLOCK), grid(1), grid(2))"),
        ([launch(1024, (8,)), launch(999, (7,))], "((n) // BLOCK, grid(1), grid(2))"),  # it forgets the tail
        ([launch(1024, (8,)), launch(999, (7,)), launch(70, (1,))], None),  # and says how many there are at least
        ([launch(1000, (8,)), launch(70, (70,))], None),  # one program an element at one of them
        ([launch(1000, (8,)), launch(1000, (8,))], None),  # it may be any number
        ([launch(1000, None), launch(70, None)], None),
        ([launch(1000, (8,)), launch(70, (2,), 64)], None),  # the launcher chooses the tile
    ],
)
def test_a_grid_follows_the_tile_that_divides_a_size_at_every_shape(monkeypatch, launches, wanted):
    monkeypatch.setattr(grids, "list_decorators", lambda kernel: ())
    found = grids.tie_grids(Kernel.parse(TEXT), {"copy": SimpleNamespace()}, launches)
    assert found == ({"copy": wanted} if wanted else {})


SECOND = TEXT.replace("program_id(0)", "program_id(1)").replace(", mask=at < n", "")


def test_an_unmasked_tile_divides_the_one_size_that_gives_the_grid(monkeypatch):
    """The kernel is not passed how many elements there are: the tensor says it."""
    monkeypatch.setattr(grids, "list_decorators", lambda kernel: ())
    launches = [launch(1000, (3, 24)), launch(70, (3, 2))]
    found = grids.tie_grids(Kernel.parse(SECOND), {"copy": SimpleNamespace()}, launches)
    assert found == {"copy": "(grid(0), cdiv(shape(x_ptr, 0) * shape(x_ptr, 1), BLOCK), grid(2))"}
    partial = [
        LaunchFact("copy", {**f.args, "y_ptr": TensorFact("fp32", f.grid, (1, 1))}, grid=f.grid) for f in launches
    ]
    assert grids.tie_grids(Kernel.parse(SECOND), {"copy": SimpleNamespace()}, partial) == {}, "a buffer by programs"


TURN = """import triton
import triton.language as tl


@triton.jit
def turn(x_ptr, y_ptr, rows, cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    down, across = tl.cdiv(rows, BLOCK_M), tl.cdiv(cols, BLOCK_N)
    pid = tl.program_id(0)
    first = pid // (GROUP * across) * GROUP
    height = min(down - first, GROUP)
    pid_m = first + pid % (GROUP * across) % height
    pid_n = pid % (GROUP * across) // height
    r = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    c = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (r < rows) & (c < cols)
    tl.store(y_ptr + c * rows + r, tl.load(x_ptr + r * cols + c, mask=mask), mask=mask)
"""
PLAIN = TURN.replace("    height = min(down - first, GROUP)\n", "").replace(
    "    first = pid // (GROUP * across) * GROUP\n", "").replace(
    "first + pid % (GROUP * across) % height", "pid // tl.cdiv(cols, BLOCK_N)").replace(
    "pid % (GROUP * across) // height", "pid % tl.cdiv(cols, BLOCK_N)").replace(
    "    down, across = tl.cdiv(rows, BLOCK_M), tl.cdiv(cols, BLOCK_N)\n", "")  # fmt: skip
TWO_AXES = PLAIN.replace("pid // tl.cdiv(cols, BLOCK_N)", "pid").replace(
    "pid % tl.cdiv(cols, BLOCK_N)", "tl.program_id(1)")  # fmt: skip
BATCH = TWO_AXES.replace("x_ptr + r", "x_ptr + tl.program_id(2) * rows * cols + r")


def turned(rows: int, cols: int, *grid: int) -> LaunchFact:
    x = TensorFact("fp32", (5, rows, cols), (rows * cols, cols, 1))
    return LaunchFact(
        "turn",
        {"x_ptr": x, "y_ptr": x, "rows": rows, "cols": cols, "BLOCK_M": 64, "BLOCK_N": 64, "GROUP": 8},
        grid=grid,
    )


BOTH = "(cdiv(rows, BLOCK_M) * cdiv(cols, BLOCK_N), grid(1), grid(2))"
EACH = "(cdiv(rows, BLOCK_M), cdiv(cols, BLOCK_N), grid(2))"


@pytest.mark.parametrize(
    "text, launches, wanted",
    [
        (TURN, [turned(2048, 1024, 512), turned(70, 130, 6), turned(3, 1, 1)], BOTH),
        (PLAIN, [turned(2048, 1024, 512), turned(70, 130, 6), turned(3, 1, 1)], BOTH),
        (TWO_AXES, [turned(48, 512, 1, 8), turned(37, 70, 1, 2)], EACH),  # equal tiles; one axis has one program
        (BATCH, [turned(48, 512, 1, 8, 5), turned(37, 70, 1, 2, 5)], EACH),
        (PLAIN, [turned(2048, 1024, 512 * 5), turned(70, 130, 6 * 5)], BOTH.replace(", g", " * shape(x_ptr, 0), g", 1)),
        (PLAIN, [turned(2048, 1024, 500), turned(70, 130, 6)], None),
    ],
)
def test_tiles_of_one_value_are_told_apart_by_what_the_kernel_does_with_them(monkeypatch, text, launches, wanted):
    monkeypatch.setattr(grids, "list_decorators", lambda kernel: ())
    found = grids.tie_grids(Kernel.parse(text), {"turn": SimpleNamespace()}, launches)
    assert found == ({"turn": wanted} if wanted else {})


SPLIT = """import triton
import triton.language as tl


@triton.jit
def split(x_ptr, part_ptr, n, BLOCK: tl.constexpr, SPLITS: tl.constexpr):
    row, share = tl.program_id(0), tl.program_id(1)
    each = tl.cdiv(tl.cdiv(n, SPLITS), BLOCK) * BLOCK
    total = 0.0
    for at in range(share * each, min(share * each + each, n), BLOCK):
        lanes = at + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + row * n + lanes, mask=lanes < min(share * each + each, n), other=0.0), 0)
    tl.store(part_ptr + row * SPLITS + share, total)


@triton.jit
def join(part_ptr, y_ptr, SPLITS: tl.constexpr):
    row = tl.program_id(0)
    tl.store(y_ptr + row, tl.sum(tl.load(part_ptr + row * SPLITS + tl.arange(0, SPLITS)), 0))
"""


def test_a_number_that_shares_out_a_buffer_of_two_kernels_is_one_name(monkeypatch):
    """The buffer is as large as the launcher made it; its rows are as many as the programs of the second kernel."""
    monkeypatch.setattr(grids, "list_decorators", lambda kernel: ())
    monkeypatch.setattr(spaces, "list_decorators", lambda kernel: ())
    seed, kernels, traces = Kernel.parse(SPLIT), {"split": SimpleNamespace(), "join": SimpleNamespace()}, []
    for key, rows, n in (("timed:0", 40, 5000), ("test:0", 3, 70)):
        x, part, y = (
            TensorFact("fp32", shape, (shape[-1], 1)[-len(shape) :]) for shape in ((rows, n), (rows, 8), (rows,))
        )
        first = LaunchFact("split", {"x_ptr": x, "part_ptr": part, "n": n, "BLOCK": 64, "SPLITS": 8}, grid=(rows, 8))
        last = LaunchFact("join", {"part_ptr": part, "y_ptr": y, "SPLITS": 8}, grid=(rows,))
        traces.append(Trace(key, (first, last)))
    tied = grids.tie_grids(seed, kernels, [launch for trace in traces for launch in trace.launches])
    assert tied == {"split": "(grid(0), SPLITS, grid(2))"}
    found = spaces.find_numbers(None, None, kernels, seed.with_changes(grid=tied), traces)
    assert found.space["SPLITS"] == (2, 4, 8) and found.config["SPLITS"] == 8
    assert found.space["split.BLOCK"] == (16, 32, 64, 128, 256), "only a loop's step, rounded up to"
    assert set(found.space) == {"SPLITS", "split.BLOCK", "split.num_warps", "join.num_warps"}
    assert len(found.notes) == 1, "nothing is left out"


def test_a_number_that_another_kernel_knows_by_another_name_is_left_alone(monkeypatch):
    """It alone would be wrong with any other value, also where the launcher's grid is a function of it."""
    monkeypatch.setattr(spaces, "list_decorators", lambda kernel: ())
    head, _, tail = SPLIT.partition("def join")
    seed = Kernel.parse(head + "def join" + tail.replace("SPLITS", "PARTS"))
    x, part = TensorFact("fp32", (40, 5000), (5000, 1)), TensorFact("fp32", (40, 8), (8, 1))
    first = LaunchFact("split", {"x_ptr": x, "part_ptr": part, "n": 5000, "BLOCK": 64, "SPLITS": 8}, grid=None)
    last = LaunchFact("join", {"part_ptr": part, "y_ptr": x, "PARTS": 8}, grid=(40,))
    traces = [Trace("timed:0", (first, last))]
    found = spaces.find_numbers(None, None, {"split": SimpleNamespace(), "join": SimpleNamespace()}, seed, traces)
    assert set(found.space) == {"split.BLOCK", "split.num_warps", "join.num_warps"}
    assert "split.SPLITS=8, join.PARTS=8, which may be a size of the problem" in found.notes[1]
