"""Constexprs that are only a loop's step may be tuned under a grid that does not follow them; no other may."""

import pytest

from kernelsearch.kernel.source import Kernel
from kernelsearch.tasks.tile_uses import TileUses

HEAD = (
    "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
    "def kernel(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):\n"
)
SUM = """    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + row * stride + cols, mask=cols < n, other=0.0), axis=0)
    tl.store(y_ptr + row, total)
"""
LANES = """    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for i in range(0, tl.cdiv(n, BLOCK)):
        cols = i * BLOCK + offsets
        total += tl.load(x_ptr + row * stride + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + row, tl.sum(total, axis=0))
"""


def of(body):
    return Kernel.parse(HEAD + body).function("kernel")


@pytest.mark.parametrize(
    "body", [SUM, LANES, SUM.replace("in range(", "in tl.range("), SUM.replace("in range(", "in tl.static_range(")]
)
def test_a_step_alone_is_one(body):
    assert TileUses(of(body)).is_step("BLOCK")


@pytest.mark.parametrize(
    "body",
    [
        # the programs' tiles: the grid has to follow
        "    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < n), mask=cols < n)\n",
        # one tile for the whole row, no loop
        "    cols = tl.arange(0, BLOCK)\n"
        "    tl.store(y_ptr + cols, tl.load(x_ptr + cols, mask=cols < n), mask=cols < n)\n",
        # as many tiles as the launcher counted
        "    for i in range(tl.program_id(0), n, tl.num_programs(0)):\n"
        "        cols = i * BLOCK + tl.arange(0, BLOCK)\n        tl.store(y_ptr + cols, 0.0)\n",
        # a step, and something else besides
        SUM.replace("row = tl.program_id(0)", "row = tl.program_id(0) * BLOCK"),
        SUM + "    tl.store(y_ptr + n, BLOCK)\n",
        "    tl.store(y_ptr, 0.0)\n",
        SUM.replace("row = tl.program_id(0)", "row = tl.program_id(n) * BLOCK"),
    ],
)
def test_whatever_else_it_is_used_for_makes_it_none(body):
    assert not TileUses(of(body)).is_step("BLOCK")


@pytest.mark.slow
def test_its_block_is_tuned_under_a_plain_grid(run, tmp_path):
    """A row's sum whose launcher's grid is `(rows,)`: from the file to the trials' configs."""
    (tmp_path / "sums.py").write_text(
        "import torch\n"
        + HEAD
        + SUM
        + """

def reference(x):
    return x.sum(dim=1)

def get_inputs(rows=64, cols=3000):
    return [torch.randn(rows, cols)]

TEST_SHAPES = [dict(rows=3, cols=70)]

def sums(x):
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    kernel[(x.shape[0],)](x, y, x.shape[1], x.stride(0), BLOCK=256)
    return y
"""
    )
    done = run(
        "optimize", tmp_path / "sums.py", "--trials", "6", "--strategy", "random_walk", "--db", tmp_path / "found.db"
    )
    assert done.code == 0, done.err
    assert "BLOCK [64, 128, 256, 512, 1024]" in done.err + done.out
    assert "grid is a tuple" not in done.err + done.out
