"""The interpreter's side of `test_offsets.py`: `TRITON_INTERPRET=1 python run_offsets.py` prints JSON."""

import json

import numpy as np
import torch
import triton
import triton.language as tl

from kernelsearch.worker.interpreter.counting import Tally, count_into
from kernelsearch.worker.interpreter.offsets import OffsetWraps, check_loaded, check_offsets, follow_offsets
from kernelsearch.worker.interpreter.programs import run_programs

ROWS, COLS = 700_000, 4096


@triton.jit
def rows(x_ptr, y_ptr, cols, HOW: tl.constexpr):
    row, c = tl.program_id(0), tl.arange(0, 16)
    exact = row.to(tl.int64) * cols
    if HOW == "plain":
        at = row * cols
    elif HOW == "cast too late":
        at = (row * cols).to(tl.int64)
    elif HOW == "chosen":
        at = tl.where(c < 8, row * cols, 0)
    elif HOW == "last row apart":
        at = (row + 1) % tl.num_programs(0) * cols
    elif HOW == "in lanes that are off":
        at = exact + tl.where(c < 8, 0, row * cols)
    elif HOW == "hash":
        at = exact + ((row * 1103515245 + 12345) >> 16) % 7
    elif HOW == "undone":
        at = exact + (row * cols + 1 - row * cols)
    else:
        at = exact
    tl.store(y_ptr + at + c, tl.load(x_ptr + exact + c, mask=c < 8), mask=c < 8)


def check(how):
    """What is said of the kernel's offsets, empty where they are right."""
    x, y = (torch.empty(ROWS * COLS, dtype=torch.int8) for _ in range(2))  # only what is touched takes memory
    args = {"x_ptr": x, "y_ptr": y, "cols": COLS, "HOW": how}

    def run(program, where):
        tally = Tally({"x_ptr": x, "y_ptr": y})
        with count_into(tally), follow_offsets(where):
            run_programs(rows, args, frozenset({"HOW"}), (ROWS, 1, 1), [program], tally.buffers, tally.patch)

    try:
        check_offsets((ROWS, 1, 1), run)
    except OffsetWraps as error:
        return str(error)
    return ""


@triton.jit
def gather(x_ptr, at_ptr, y_ptr, rows, cols, HOW: tl.constexpr):
    place, c = tl.program_id(0), tl.arange(0, 16)
    row = tl.load(at_ptr + place)
    if HOW == "index, exact":
        at = row.to(tl.int64) * cols
    elif HOW == "index, and one more":
        at = (row + 1) * cols
    else:
        at = row * cols
    if HOW == "both":
        at += place.to(tl.int64) * 0 + (place * 10_000_000 - place.to(tl.int64) * 10_000_000)
    inside = (c < 8) & (row < rows)
    tl.store(y_ptr + place * 16 + c, tl.load(x_ptr + at + c, mask=inside, other=0), mask=c < 8)


def check_gather(how, most):
    """What is said of a gather's offsets; no program that is looked at has the largest of its indices."""
    x = torch.empty(ROWS * COLS, dtype=torch.int8)
    index = torch.arange(1000, dtype=torch.int32)
    index[7:9] = torch.tensor([most, 10**9])  # the last is padding
    passed = {"x_ptr": x, "at_ptr": index, "y_ptr": torch.empty(16_000, dtype=torch.int8)}
    args, before = {**passed, "rows": ROWS, "cols": COLS, "HOW": how}, index.clone()

    def run(program, where, instead=None):
        tally = Tally(passed)
        with count_into(tally), follow_offsets(instead or where, None if instead is None else tally.buffers):
            run_programs(gather, args, frozenset({"HOW"}), (1000, 1, 1), [program], tally.buffers, tally.patch)

    try:
        check_loaded((1000, 1, 1), passed, run)
    except OffsetWraps as error:
        return str(error)
    assert np.array_equal(index, before)
    return ""


if __name__ == "__main__":
    wrap = ["plain", "cast too late", "chosen", "last row apart"]
    said = {how: check(how) for how in (*wrap, "in lanes that are off", "hash", "undone", "exact")}
    said |= {how: check_gather(how, ROWS - 1) for how in ("index", "index, exact", "both")}
    said["index, small"] = check_gather("index", 524_287)
    said["index, and one more"] = check_gather("index, and one more", ROWS - 1)  # beyond the end: not what is asked
    print(json.dumps(said))
