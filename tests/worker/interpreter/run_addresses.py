"""The interpreter's side of `test_addresses.py`: `TRITON_INTERPRET=1 python run_addresses.py` prints JSON."""

import json
import sys

import torch
import triton
import triton.language as tl

from kernelsearch.worker.interpreter.addresses import Buffers
from kernelsearch.worker.interpreter.programs import order_programs, run_programs, watch
from kernelsearch.worker.interpreter.races import AccessLog


@triton.jit
def plain(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y_ptr + i, tl.load(x_ptr + i))


@triton.jit
def peeled(x_ptr, y_ptr, N: tl.constexpr):
    first = (x_ptr.to(tl.int64) + 127) // 128 * 128
    head = ((first - x_ptr.to(tl.int64)) // 4).to(tl.int32)
    i = tl.arange(0, N)
    if head > 4:
        tl.store(y_ptr + i, tl.load(x_ptr + i), mask=i < head)
    tl.store(y_ptr + i, tl.load(x_ptr + i), mask=i >= head)
    if head > 0:
        tl.store(y_ptr + i, tl.load(x_ptr + i), mask=i < head)


@triton.jit
def there_and_back(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    moved = (x_ptr.to(tl.uint64) + 4 * i.to(tl.uint64)).to(tl.pointer_type(tl.float32))
    tl.store(y_ptr + i, tl.load(moved))


@triton.jit
def branches(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    if x_ptr.to(tl.int64) > 256 * 4294967296:
        tl.store(y_ptr + i, tl.load(x_ptr + i))


@triton.jit
def distance(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    apart = y_ptr.to(tl.int64) - x_ptr.to(tl.int64)
    tl.store(y_ptr + i, tl.where(apart == 4 * N, 0.0, tl.load(x_ptr + i)))


@triton.jit
def shifted(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y_ptr + i, tl.load(x_ptr + i), mask=i < N - ((x_ptr.to(tl.int64) >> 21) & 7))
    tl.store(y_ptr + i, tl.load(x_ptr + i))


@triton.jit
def offset(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    bit = ((x_ptr.to(tl.int64) >> 21) & 1).to(tl.int32)
    tl.store(y_ptr + i, tl.load(x_ptr + i + 0 * bit))
    tl.store(y_ptr + (i + bit) % N, tl.load(x_ptr + (i + bit) % N))


@triton.jit
def loops(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    for _ in range(1 + ((x_ptr.to(tl.int64) >> 21) & 1)):
        tl.store(y_ptr + i, tl.load(x_ptr + i))


@triton.jit
def stored(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(y_ptr + i, (x_ptr.to(tl.int64) >> 21).to(tl.float32) + i)
    tl.store(y_ptr + i, tl.load(x_ptr + i))


@triton.jit
def reduced(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    total = tl.sum((x_ptr.to(tl.int64) >> 21) + tl.zeros([N], tl.int64), axis=0)
    tl.store(y_ptr + i, tl.load(x_ptr + i), mask=i < N + total % 2)


@triton.jit
def sorted_in_float(x_ptr, y_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    number = tl.max((x_ptr.to(tl.int64) + i).to(tl.float64), axis=0)
    tl.store(y_ptr + i, tl.load(x_ptr + i) + (number * 0.0).to(tl.float32))
    tl.store(y_ptr + i, tl.load(x_ptr + i), mask=(number + i) > 1e12)
    tl.store(y_ptr + i, tl.load(x_ptr + i))


def ran(function, shift=0):
    """(what was noted, whether the output is the input) of one run."""
    x, y = torch.arange(256, dtype=torch.float32), torch.zeros(256)
    tensors = {"x_ptr": x, "y_ptr": y}
    buffers = Buffers(tensors, shift)
    with watch(buffers, AccessLog(tensors)):
        run_programs(
            function, {**tensors, "N": 256}, frozenset({"N"}), (1, 1, 1), order_programs((1, 1, 1), "forward"), buffers
        )
    return buffers.suspect, bool((x == y).all())


def lies():
    """How the first element's address stands to 512, by shift, and whether two runs lie in the same place."""
    x = torch.zeros(100)
    places = [Buffers({"x": x, "y": torch.zeros(3)}, s).address_of(x)[0] for s in (0, 0, 16)]
    view = Buffers({"v": x[5:]})
    return [int(p % 512) for p in places], bool(places[0] != places[1]), int(view.address_of(x[5:])[0] % 512)


def main():
    honest = (plain, peeled, there_and_back)
    cheats = (branches, distance, shifted, offset, loops, stored, reduced, sorted_in_float)
    results = {f.__name__: [ran(f), ran(f, 16)] for f in (*honest, *cheats)}
    json.dump({"ran": results, "honest": [f.__name__ for f in honest], "lies": lies()}, sys.stdout)


if __name__ == "__main__":
    main()
