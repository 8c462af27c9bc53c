"""Tuples of the launcher's that follow a tile."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kernelsearch.core.types import LaunchFact, TensorFact
from kernelsearch.kernel.source import Kernel
from kernelsearch.tasks import grids

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
        ([launch(1000, (3, 24)), launch(70, (3, 2))], "(grid(0), cdiv(numel(x_ptr), BLOCK), grid(2))"),
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
