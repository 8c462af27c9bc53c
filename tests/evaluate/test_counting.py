"""What single programs of a launch do is counted, and stands for the whole grid."""

import pytest
import torch
from evaluated import prepare

from kernelsearch.evaluate.counting import CountedRun, DrawnValues, UnseenStorages, count_step
from kernelsearch.evaluate.launch import CompiledKernel

ROWS = """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row, total = tl.program_id(0), tl.zeros([BLOCK], tl.float32)
    for first in range(0, n, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        total += tl.exp(tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0))
    tl.store(y_ptr + row, tl.sum(total))
"""
TICKETS = """
@triton.jit
def kernel(x_ptr, y_ptr, next_ptr, n, BLOCK: tl.constexpr):
    row = tl.atomic_add(next_ptr, 1)
    while row < n:
        cols = tl.arange(0, BLOCK)
        tl.store(y_ptr + row * BLOCK + cols, tl.load(x_ptr + row * BLOCK + cols))
        row = tl.atomic_add(next_ptr, 1)
"""
ENDS = """
@triton.jit
def kernel(x_ptr, end_ptr, y_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    for i in range(tl.load(end_ptr + row)):
        tl.store(y_ptr + row * BLOCK + cols, tl.load(x_ptr + cols))
"""
EITHER = """
@triton.jit
def kernel(x_ptr, y_ptr, z_ptr, n, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x_ptr + row % n * BLOCK + cols)
    if row < n:
        tl.store(y_ptr + row * BLOCK + cols, value)
    else:
        tl.store(z_ptr + (row - n) * BLOCK + cols, value)
"""
PRODUCT = """
@triton.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.dot(a, a))
"""
WELFORD = """
@triton.jit
def join(a, b, c, d):
    return a + c, b + d + a * c


@triton.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    a, b = tl.reduce((x, x), 0, join)
    tl.store(y_ptr, a + b)
"""
DESCRIBED = """
@triton.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    described = tl.make_tensor_descriptor(x_ptr, [BLOCK, BLOCK], [BLOCK, 1], [BLOCK, BLOCK])
    at = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, described.load([0, 0]))
"""


def count(body, args, grid, block=128):
    """The totals of a launch, scaled to its grid, and the tally."""
    module, buffers, values = prepare(body, args, {"BLOCK": block}, (grid, 1, 1), storages=UnseenStorages)
    run = CountedRun(CompiledKernel(module, wrap=count_step), buffers, values, (grid, 1, 1), DrawnValues(3))
    scale = grid / run.count()
    return {name: total * scale for name, total in run.tally.total.items()}, run.tally


def test_a_loop_is_sampled_and_its_last_partial_turn_counts_as_one():
    total, tally = count(ROWS, {"x_ptr": torch.zeros(1000, 10_000), "y_ptr": torch.zeros(1000), "n": 10_000}, 1000)
    assert total["load_bytes"] == 4e7 and total["store_bytes"] == 4000 and total["iterations"] == 79_000
    assert total["special"] == 79 * 128 * 1000 and total["reductions"] == 1000 and tally.tile == 128
    assert total["elements"] == (79 + 1) * 128 * 1000  # the additions of the loop and those of the sum


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("turns", [3, 8, 1000])
def test_the_sampled_turns_of_many_programs_are_spread_evenly(seed, turns):
    drawn = DrawnValues(seed)
    chosen = [turn for program in range(32) for turn in drawn.choose_turns(turns, program)]
    first_part = sum(turn < turns / 2 for turn in range(turns)) / turns
    assert set(chosen) <= set(range(turns))
    assert sum(turn < turns / 2 for turn in chosen) / len(chosen) == pytest.approx(first_part, abs=0.04)


def test_no_two_searches_sample_the_same_turns():
    assert len({tuple(DrawnValues(seed).choose_turns(1000, 0)) for seed in range(8)}) > 6


def test_masked_lanes_move_no_bytes():
    total, _ = count(ROWS, {"x_ptr": torch.zeros(10, 30), "y_ptr": torch.zeros(10), "n": 30}, 10)
    assert total["load_bytes"] == 10 * 30 * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.uint8])
def test_a_descriptors_tiles_have_the_bytes_of_their_type(dtype):
    x, y = torch.zeros(64, 64, dtype=dtype), torch.zeros(64, 64, dtype=dtype)
    total, _ = count(DESCRIBED, {"x_ptr": x, "y_ptr": y}, 1, 64)
    assert total["load_bytes"] == total["store_bytes"] == 64 * 64 * dtype.itemsize


def test_programs_that_draw_their_rows_do_all_rows_once():
    args = {"x_ptr": torch.zeros(50, 128), "y_ptr": torch.zeros(50, 128), "next_ptr": torch.zeros(1, dtype=torch.int32)}
    total, _ = count(TICKETS, {**args, "n": 50}, 8)
    assert total["load_bytes"] == 50 * 128 * 4 and total["loads"] == 50 and total["atomics"] == 58


def test_both_tensors_count_where_few_programs_serve_the_second():
    x, y, z = torch.zeros(1000, 64), torch.zeros(1000, 64), torch.zeros(150, 64)
    _, tally = count(EITHER, {"x_ptr": x, "y_ptr": y, "z_ptr": z, "n": 1000}, 1150, 64)
    written = sorted(number for (_, kind), number in tally.by_buffer.items() if kind == "store")
    assert len(written) == 2 and written[0] < 0.3 * written[1]


def test_more_programs_are_counted_where_lengths_differ():
    ends = torch.arange(1000, dtype=torch.int32) % 7
    total, _ = count(ENDS, {"x_ptr": torch.zeros(128), "end_ptr": ends, "y_ptr": torch.zeros(1000, 128)}, 1000)
    assert total["iterations"] == pytest.approx(3000, rel=0.3)


def test_a_product_counts_by_the_width_of_its_operands_and_is_not_computed():
    x, y = torch.zeros(64, 64, dtype=torch.float16), torch.zeros(64, 64)
    _, tally = count(PRODUCT, {"x_ptr": x, "y_ptr": y}, 1, 64)
    assert tally.dots == {"16": 2.0 * 64**3} and tally.tile == 64 * 64 and bool(y.any())


def test_a_reduction_counts_what_it_does_with_two_elements():
    total, _ = count(WELFORD, {"x_ptr": torch.zeros(128), "y_ptr": torch.zeros(1)}, 1)
    assert total["elements"] == 4 * 128 and total["reductions"] == 1


def test_what_is_read_of_an_input_is_drawn_and_what_was_stored_stays():
    x, drawn = torch.zeros(1 << 20), DrawnValues(5)
    pool = torch.randn(1 << 14)
    drawn.add(x, pool, True)
    _, buffers, _ = prepare(ROWS, {"x_ptr": x, "y_ptr": x, "n": 128}, {"BLOCK": 128}, (1, 1, 1))
    index = torch.randint(1 << 20, (10_000,))
    values = drawn.fill(buffers.buffers[0], index, x[index])
    assert values.std() == pytest.approx(1, rel=0.1) and torch.isin(values, pool).all()
    assert torch.equal(values, drawn.fill(buffers.buffers[0], index, x[index]))
    assert torch.equal(drawn.fill(buffers.buffers[0], index, values + 1), values + 1)
