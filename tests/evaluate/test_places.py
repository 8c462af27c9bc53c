"""A kernel sees imagined addresses; one that peels to an alignment is left alone, one that decides by more is noted."""

import pytest
import torch
from evaluated import evaluate

from kernelsearch.evaluate.buffers import Storages
from kernelsearch.evaluate.places import follow_places

HONEST = {
    "peeled": """
    first = (x_ptr.to(tl.int64) + 127) // 128 * 128
    head = ((first - x_ptr.to(tl.int64)) // 4).to(tl.int32)
    i = tl.arange(0, N)
    if head > 4:
        tl.store(y_ptr + i, tl.load(x_ptr + i), mask=i < head)
    tl.store(y_ptr + i, tl.load(x_ptr + i), mask=i >= head)
    if head > 0:
        tl.store(y_ptr + i, tl.load(x_ptr + i), mask=i < head)
""",
    "there_and_back": """
    i = tl.arange(0, N)
    moved = (x_ptr.to(tl.uint64) + 4 * i.to(tl.uint64)).to(tl.pointer_type(tl.float32))
    tl.store(y_ptr + i, tl.load(moved))
""",
}
CHEATS = {
    "lies_where_a_gpu_has_it": """
    i = tl.arange(0, N)
    tl.store(y_ptr + i, tl.load(x_ptr + i), mask=(i < N) & ((x_ptr.to(tl.int64) >> 40) == 0x7F))
""",
    "branches": """
    i = tl.arange(0, N)
    if x_ptr.to(tl.int64) > 256 * 4294967296:
        tl.store(y_ptr + i, tl.load(x_ptr + i))
""",
    "distance": """
    i = tl.arange(0, N)
    apart = y_ptr.to(tl.int64) - x_ptr.to(tl.int64)
    tl.store(y_ptr + i, tl.where(apart == 4 * N, 0.0, tl.load(x_ptr + i)))
""",
    "shifted": """
    i = tl.arange(0, N)
    tl.store(y_ptr + i, tl.load(x_ptr + i), mask=i < N - ((x_ptr.to(tl.int64) >> 21) & 7))
    tl.store(y_ptr + i, tl.load(x_ptr + i))
""",
    "offset": """
    i = tl.arange(0, N)
    bit = ((x_ptr.to(tl.int64) >> 21) & 1).to(tl.int32)
    tl.store(y_ptr + i, tl.load(x_ptr + i + 0 * bit))
    tl.store(y_ptr + (i + bit) % N, tl.load(x_ptr + (i + bit) % N))
""",
    "loops": """
    i = tl.arange(0, N)
    for _ in range(1 + ((x_ptr.to(tl.int64) >> 21) & 1)):
        tl.store(y_ptr + i, tl.load(x_ptr + i))
""",
    "stored": """
    i = tl.arange(0, N)
    tl.store(y_ptr + i, (x_ptr.to(tl.int64) >> 21).to(tl.float32) + i)
    tl.store(y_ptr + i, tl.load(x_ptr + i))
""",
    "reduced": """
    i = tl.arange(0, N)
    total = tl.sum((x_ptr.to(tl.int64) >> 21) + tl.zeros([N], tl.int64), axis=0)
    tl.store(y_ptr + i, tl.load(x_ptr + i), mask=i < N - total % 512)
""",
    "sorted_in_float": """
    i = tl.arange(0, N)
    number = tl.max((x_ptr.to(tl.int64) + i).to(tl.float64), axis=0)
    tl.store(y_ptr + i, tl.load(x_ptr + i) + (number * 0.0).to(tl.float32))
    tl.store(y_ptr + i, tl.load(x_ptr + i), mask=(number + i) > 1e12)
    tl.store(y_ptr + i, tl.load(x_ptr + i))
""",
}


def run(body):
    """What is noted, and whether the output is the input."""
    x, y = torch.arange(256, dtype=torch.float32), torch.zeros(256)
    text = f"@triton.jit\ndef kernel(x_ptr, y_ptr, N: tl.constexpr):\n{body}"
    return evaluate(text, dict(x_ptr=x, y_ptr=y), dict(N=256), (1,), wrap=follow_places).suspect, torch.equal(x, y)


@pytest.mark.parametrize("name", HONEST)
def test_alignment_is_a_kernels_own_business(name):
    assert run(HONEST[name]) == ("", True)


@pytest.mark.parametrize("name", CHEATS)
def test_who_decides_by_more_is_noted(name):
    assert "where its buffers lie" in run(CHEATS[name])[0]


def test_buffers_lie_where_those_of_a_gpu_do_and_elsewhere_each_time():
    places = {Storages([]).address_of(0) for _ in range(9)}
    assert len(places) > 5 and all(place >> 40 == 0x7F and place % 512 == 0 for place in places)
