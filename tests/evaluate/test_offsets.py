"""Offsets of 32 bits that wrap around on their way to an address are seen at sizes that nobody fills."""

import pytest
import torch
from evaluated import prepare

from kernelsearch.evaluate.counting import DrawnValues, UnseenStorages
from kernelsearch.evaluate.launch import CompiledKernel
from kernelsearch.evaluate.offsets import FollowedRun, OffsetWraps, check_loaded, check_offsets, follow_step, may_wrap

ROWS, COLS = 700_000, 4096
ROW = """
@triton.jit
def kernel(x_ptr, y_ptr, cols):
    row, c = tl.program_id(0), tl.arange(0, 16)
    exact = row.to(tl.int64) * cols
    at = {at}
    tl.store(y_ptr + at + c, tl.load(x_ptr + exact + c, mask=c < 8), mask=c < 8)
"""
GATHER = """
@triton.jit
def kernel(x_ptr, at_ptr, y_ptr, rows, cols):
    place, c = tl.program_id(0), tl.arange(0, 16)
    row = tl.load(at_ptr + place)
    at = {at}
    inside = (c < 8) & (row < rows)
    tl.store(y_ptr + place * 16 + c, tl.load(x_ptr + at + c, mask=inside, other=0), mask=c < 8)
"""


def checker(body, args, grid):
    """A function that runs one program of a kernel and follows its offsets."""
    module, buffers, values = prepare(body, args, {}, grid, storages=UnseenStorages)
    compiled = CompiledKernel(module, wrap=follow_step)
    assert not may_wrap(module, 2**31 - 1)

    def run(program, where, instead=None):
        one = FollowedRun(compiled, buffers, values, grid, DrawnValues(0))
        one.where, one.inside_only = instead or where, instead is not None
        one.run_chunk(torch.tensor([program[0]], dtype=torch.int32))

    return run


def large():
    return torch.empty(ROWS * COLS, dtype=torch.int8)  # only what is touched takes memory


@pytest.mark.parametrize("at, wraps", [
    ("row * cols", True), ("row * cols + (c >> 31)", True), ("(row * cols).to(tl.int64)", True),
    ("tl.where(c < 8, row * cols, 0)", True),
    ("exact + tl.where(c < 8, 0, row * cols)", False), ("exact + ((row * 1103515245 + 12345) >> 16) % 7", False),
    ("exact + (row * cols + 1 - row * cols)", False), ("exact", False),
])  # fmt: skip
def test_a_row_whose_offset_wraps_is_found_and_named(at, wraps):
    run = checker(ROW.format(at=at), {"x_ptr": large(), "y_ptr": large(), "cols": COLS}, (ROWS, 1, 1))
    if not wraps:
        return check_offsets((ROWS, 1, 1), run)
    with pytest.raises(OffsetWraps, match="wraps around from program 524,288 of 700,000 on: cast a factor to tl.int64"):
        check_offsets((ROWS, 1, 1), run)


@pytest.mark.parametrize("at, most, wraps", [
    ("row * cols", ROWS - 1, True), ("row.to(tl.int64) * cols", ROWS - 1, False), ("row * cols", 524_287, False),
    ("(row + 1) * cols", ROWS - 1, False),  # beyond the end: not what is asked
])  # fmt: skip
def test_an_index_that_no_program_of_the_sample_loads_is_tried(at, most, wraps):
    index = torch.arange(1000, dtype=torch.int32)
    index[7:9] = torch.tensor([most, 10**9])  # the last is padding
    args = {"x_ptr": large(), "at_ptr": index, "y_ptr": torch.empty(16_000, dtype=torch.int8)}
    before, run = index.clone(), checker(GATHER.format(at=at), {**args, "rows": ROWS, "cols": COLS}, (1000, 1, 1))
    if wraps:
        with pytest.raises(OffsetWraps, match=f"wraps around where at_ptr holds {most:,}"):
            check_loaded((1000, 1, 1), {"at_ptr": index}, run)
        return
    check_loaded((1000, 1, 1), {"at_ptr": index}, run)
    assert torch.equal(index, before)
