"""The interpreter's side of `test_programs.py`: `TRITON_INTERPRET=1 python run_programs.py` prints JSON."""

import json
import sys

import torch
import triton
import triton.language as tl

from kernelsearch.evaluate.faults import OutOfBounds
from kernelsearch.worker.interpreter.addresses import Buffers
from kernelsearch.worker.interpreter.counting import Tally, count_into, run_sampled, sample_programs
from kernelsearch.worker.interpreter.input_values import InputValues
from kernelsearch.worker.interpreter.programs import order_programs, run_programs, watch
from kernelsearch.worker.interpreter.races import AccessLog


@triton.jit
def add(x_ptr, y_ptr, z_ptr, n, OFFSET: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(x_ptr + i, mask=i < n, other=0.0) + tl.load(y_ptr + i, mask=i < n, other=0.0)
    tl.store(z_ptr + i + OFFSET, z, mask=i < n)


@triton.jit
def gather(x_ptr, y_ptr, z_ptr, n, OFFSET: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(z_ptr + i, tl.load(x_ptr + i + OFFSET), mask=i < n)


@triton.jit
def wrapped(x_ptr, y_ptr, z_ptr, n, OFFSET: tl.constexpr, BLOCK: tl.constexpr):
    there = (x_ptr.to(tl.int64) * 0 + OFFSET).to(tl.pointer_type(tl.float32))
    tl.store(z_ptr, tl.load(there))


@triton.jit
def bump(x_ptr, y_ptr, z_ptr, n, OFFSET: tl.constexpr, BLOCK: tl.constexpr):
    tl.atomic_add(z_ptr + n + OFFSET, 1.0)


@triton.jit
def order(x_ptr, y_ptr, z_ptr, n, OFFSET: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(z_ptr, tl.load(z_ptr) * 10 + tl.program_id(0))


@triton.jit
def half_constant(x_ptr, y_ptr, z_ptr, n, OFFSET: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(z_ptr + i, tl.full([BLOCK], 1.5, tl.bfloat16).to(tl.float32) + 0.0, mask=i < n)


@triton.jit
def by_row(x_ptr, y_ptr, z_ptr, n, OFFSET: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = (i < n) & (tl.program_id(0) < tl.num_programs(0))
    tl.store(z_ptr + i + OFFSET, tl.load(z_ptr + i + OFFSET, mask=here, other=7.0) + 2.0, mask=here)


@triton.jit
def flagged(z_ptr, twice, BLOCK: tl.constexpr):
    value = 1.0
    if twice:
        value = 2.0
    tl.store(z_ptr + tl.arange(0, BLOCK), value + twice)


@triton.jit
def indexed(x_ptr, y_ptr, z_ptr, n, OFFSET: tl.constexpr, BLOCK: tl.constexpr):
    row, col = tl.arange(0, 4)[:, None], tl.arange(0, 16)[None, :]
    high = tl.where(row == 1, float("nan"), 0.0 - tl.abs((col - row).to(tl.float32)))
    _, largest = tl.max(high, axis=1, return_indices=True)
    tl.store(z_ptr + tl.arange(0, 4), (largest * 100 + tl.argmin(0.0 - high, axis=1)).to(tl.float32))
    tl.store(z_ptr + 4, tl.argmax(tl.where(col == 7, 2.0, 1.0), axis=1).to(tl.float32).sum())


@triton.jit
def softmax(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + i, mask=i < n, other=float("-inf"))
        top = tl.maximum(top, tl.max(x, axis=0))
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + i, mask=i < n, other=float("-inf"))
        total += tl.sum(tl.exp(x - top), axis=0)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + i, mask=i < n, other=0.0)
        tl.store(y_ptr + row * stride + i, tl.exp(x - top) / total, mask=i < n)


@triton.jit
def in_place(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)


@triton.jit
def stored_first(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * 2, mask=i < n)
    tl.store(y_ptr + i, tl.load(y_ptr + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def last_of(first, n, step):
    last = first
    for i in tl.range(first, n, step=step, num_stages=2):
        last = i.to(tl.int64)
    return last


@triton.jit
def looped(y_ptr, large, n, BLOCK: tl.constexpr):
    """What a loop's variable is: its type, how it wraps around, and that a static one is a constant."""
    for i in range(3, 4):
        tl.store(y_ptr, i.to(tl.int64) * large)
        tl.store(y_ptr + 1, i * large)
        tl.store(y_ptr + 2, i.dtype.primitive_bitwidth)
    for i in range(large.to(tl.int64) * 4, large.to(tl.int64) * 4 + 1):
        tl.store(y_ptr + 3, i)
    for i in tl.static_range(2, 8, step=3):
        tl.store(y_ptr + 3 + i, tl.sum(tl.full([2**i], 1, tl.int32)))
    tl.store(y_ptr + 4, last_of(0, n, 3))
    for i in range(n):
        if i == n - 1:
            tl.store(y_ptr + 6, i.to(tl.float32).to(tl.int64))


@triton.jit
def take_turns(y_ptr, lock_ptr, BLOCK: tl.constexpr):
    held = tl.atomic_cas(lock_ptr, 0, 1)
    tl.store(y_ptr + tl.arange(0, BLOCK), 1.0 + held)


@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        ks = start + tl.arange(0, BK)
        acc += tl.dot(tl.load(a_ptr + m[:, None] * k + ks[None, :]), tl.load(b_ptr + ks[:, None] * n + j[None, :]))
    tl.store(c_ptr + m[:, None] * n + j[None, :], acc)


def watched_run(function, n=100, block=64, offset=0, grid=(2, 1, 1), where="forward"):
    """(what was refused or None, the output afterwards)."""
    x, y, z = torch.ones(n), torch.ones(n), torch.zeros(n)
    args = dict(x_ptr=x, y_ptr=y, z_ptr=z, n=n, OFFSET=offset, BLOCK=block)
    try:
        tensors = {"x_ptr": x, "y_ptr": y, "z_ptr": z}
        buffers = Buffers(tensors)
        with watch(buffers, AccessLog(tensors)):
            run_programs(function, args, frozenset({"OFFSET", "BLOCK"}), grid, order_programs(grid, where, 3), buffers)
    except OutOfBounds as error:
        return str(error), z.tolist()
    return None, z.tolist()


def flag(twice):
    """What a kernel with a truth value among its run-time arguments stores."""
    z = torch.zeros(4)
    run_programs(flagged, dict(z_ptr=z, twice=twice, BLOCK=4), frozenset({"BLOCK"}), (1, 1, 1), [(0, 0, 0)])
    return z.tolist()


def in_order(where):
    """The output of a kernel that writes down which program came when."""
    z = torch.zeros(1, dtype=torch.int32)
    args = dict(x_ptr=z, y_ptr=z, z_ptr=z, n=1, OFFSET=0, BLOCK=1)
    run_programs(order, args, frozenset({"OFFSET", "BLOCK"}), (8, 1, 1), order_programs((8, 1, 1), where, 1))
    return f"{z.item():08d}"


def counted(function, tensors, scalars, constexprs, grid):
    tally = Tally(tensors)
    programs = sample_programs(grid)
    with count_into(tally):
        run_programs(
            function,
            {**tensors, **scalars, **constexprs},
            frozenset(constexprs),
            grid,
            programs,
            tally.buffers,
            tally.patch,
        )
    counts = tally.to_counts(function.__name__, grid[0] * grid[1] * grid[2], len(programs))
    return {n: dict(v) if n == "flops_dot" else v for n, v in vars(counts).items()}


@triton.jit
def ragged(x_ptr, n_ptr, y_ptr, SQUARED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    n = tl.load(n_ptr + row)
    total = tl.zeros([BLOCK], tl.float32)
    for at in range(0, n, BLOCK):
        x = tl.load(x_ptr + at + tl.arange(0, BLOCK))
        total += x * x if SQUARED else x
    tl.store(y_ptr + row, tl.sum(total, 0))


def counted_ragged(squared, secret, equal=False):
    """Counts of rows of other lengths, or of equal ones."""
    lengths = 64 * (torch.ones(256, dtype=torch.int32) if equal else torch.arange(256, dtype=torch.int32) * 7 % 256)
    tensors = {"x_ptr": torch.zeros(64 * 256), "n_ptr": lengths, "y_ptr": torch.zeros(256)}
    tally, constexprs, seen = Tally(tensors, InputValues(secret)), {"SQUARED": squared, "BLOCK": 64}, []

    def run(programs):
        seen.extend(programs)
        args = {**tensors, **constexprs}
        run_programs(ragged, args, frozenset(constexprs), (256, 1, 1), programs, tally.buffers, tally.patch)
        tally.drawn.rng.random()  # candidates draw their own numbers of iterations

    with count_into(tally):
        number = run_sampled(tally, (256, 1, 1), run)
    found = tally.to_counts("ragged", 256, number)
    return {
        "programs": seen,
        "loads": found.load_bytes,
        "turns": found.iterations,
        "truth": 256 * lengths.sum().item() / 64,
    }


def main():
    kinds = torch.zeros(9, dtype=torch.int64)
    looped_args = dict(y_ptr=kinds, large=2**30, n=8, BLOCK=4)
    run_programs(looped, looped_args, frozenset({"BLOCK"}), (1, 1, 1), [(0, 0, 0)])
    matrix = lambda rows, cols, dtype=torch.float32: torch.zeros(rows, cols, dtype=dtype)  # noqa: E731
    results = {
        "inside": watched_run(add),
        "store_behind": watched_run(add, offset=1),
        "store_far": watched_run(add, offset=1 << 40),
        "store_before": watched_run(add, offset=-1),
        "load_behind": watched_run(gather, n=64, offset=1, grid=(1, 1, 1)),
        "load_far": watched_run(gather, n=64, offset=1 << 40, grid=(1, 1, 1)),
        "load_at_the_end_of_all_addresses": watched_run(wrapped, offset=-2),
        "load_at_null": watched_run(wrapped, offset=0),
        "atomic_inside": watched_run(bump, offset=-1, grid=(3, 1, 1)),
        "atomic_behind": watched_run(bump, offset=0),
        "again_inside": watched_run(add),
        "half_constant": watched_run(half_constant, n=64, grid=(1, 1, 1)),
        "by_row_inside": watched_run(by_row),
        "by_row_behind": watched_run(by_row, offset=1),
        "flagged": [flag(True), flag(False)],
        "indexed": watched_run(indexed, n=64, grid=(1, 1, 1)),
        "orders": {w: in_order(w) for w in ("forward", "reversed", "shuffled")},
        "vector_add": counted(
            add, {"x_ptr": torch.zeros(98_304), "y_ptr": torch.zeros(98_304), "z_ptr": torch.zeros(98_304)},
            {"n": 98_304}, {"OFFSET": 0, "BLOCK": 1024}, (96, 1, 1)),
        "loops": kinds.tolist(),
        "loops_counted": counted(looped, {"y_ptr": torch.zeros(9, dtype=torch.int64)}, {"large": 2**30, "n": 8},
                                 {"BLOCK": 4}, (1, 1, 1)),
        "in_place": counted(in_place, {"x_ptr": torch.zeros(98_304)}, {"n": 98_304}, {"BLOCK": 1024}, (96, 1, 1)),
        "stored_first": counted(stored_first, {"x_ptr": torch.zeros(98_304), "y_ptr": torch.zeros(98_304)},
                                {"n": 98_304}, {"BLOCK": 1024}, (96, 1, 1)),
        "softmax": counted(softmax, {"x_ptr": matrix(512, 8192), "y_ptr": matrix(512, 8192)},
                           {"stride": 8192, "n": 8192}, {"BLOCK": 1024}, (512, 1, 1)),
        "softmax_whole": counted(softmax, {"x_ptr": matrix(512, 8192), "y_ptr": matrix(512, 8192)},
                                 {"stride": 8192, "n": 8192}, {"BLOCK": 4096}, (512, 1, 1)),
        "take_turns": counted(
            take_turns, {"y_ptr": torch.zeros(8), "lock_ptr": torch.zeros(1, dtype=torch.int32)}, {}, {"BLOCK": 8},
                              (4, 1, 1)),
        "ragged": [counted_ragged(False, 1), counted_ragged(True, 1), counted_ragged(True, 2)],
        "even": counted_ragged(False, 1, equal=True),
        "matmul": counted(
            matmul, {"a_ptr": matrix(256, 512, torch.float16), "b_ptr": matrix(512, 128, torch.float16),
                     "c_ptr": matrix(256, 128)},
            {"n": 128, "k": 512}, {"BM": 64, "BN": 32, "BK": 32}, (4, 4, 1)),
    }  # fmt: skip
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
