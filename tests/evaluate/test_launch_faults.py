"""Accesses outside of buffers and races are facts of a launch; what only looks like them is no fault."""

from types import SimpleNamespace

import pytest
import torch
from evaluated import evaluate

from kernelsearch.evaluate.faults import EndlessLoop, Fault, OutOfBounds, Race
from kernelsearch.evaluate.launch import GridRun
from kernelsearch.worker.launcher.standin import fill_with_poison

HEAD = """
@triton.jit
def kernel(x, y, n, B: tl.constexpr):
    p = tl.program_id(0)
    o = tl.arange(0, B)
    i = p * B + o
"""
FAULTS = {
    "a mask one too wide": ("tl.store(y + i, tl.load(x + i, mask=i <= n), mask=i <= n)", OutOfBounds, "1 lanes of"),
    "rows before the first": ("tl.store(y + i, tl.load(x + i - B, mask=i < n), mask=i < n)", OutOfBounds, "(0, 0, 0)"),
    "far away": ("tl.store(y + i.to(tl.int64) * 1000003, 1.0, mask=i < n)", OutOfBounds, "nearest 'y'"),
    "two programs store": ("tl.store(y + o, tl.load(x + i, mask=i < n))", Race, "given another value"),
    "a neighbour's zeros, stored before its own": (
        "tl.store(y + (i + B) % n, 0.0)\n    tl.store(y + i % n, 0.0)\n    tl.store(y + i % n, 1.0)",
        Race,
        "given another value",
    ),
    "an index outside of a tile": ("tl.store(y + o, tl.gather(o, o - 1, 0).to(tl.float32))", OutOfBounds, "tl.gather"),
    "two lanes store": ("tl.store(y + o // 2, o.to(tl.float32))", Race, "several values by one store"),
    "a neighbour's output": (
        "tl.store(y + i, 1.0, mask=i < n)\n    tl.store(y + i, tl.load(y + (i + B) % n), mask=i < n)",
        Race,
        "is loaded by",
    ),
    "an update of what another stores": (
        "tl.store(y + o, 0.0)\n    tl.atomic_add(y + o, 1.0)",
        Race,
        "updated atomically",
    ),
    "halves of what another stores": (
        "tl.store(y + i, 1.0, mask=i < n)\n"
        "    tl.store(y.to(tl.pointer_type(tl.int16)) + i, i.to(tl.int16), mask=i < n)",
        Race,
        "given another value",
    ),
    "an assumption that does not hold": (
        "tl.assume(n % 16 == 0)\n    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)",
        Fault,
        "does not hold",
    ),
    "a number that is no such multiple": (
        "j = tl.multiple_of(p * n, 16) + o\n    tl.store(y + i, tl.load(x + j % n, mask=i < n), mask=i < n)",
        Fault,
        "a multiple of 16 of what is none",
    ),
    "a tile that begins elsewhere": (
        "j = tl.max_contiguous(tl.multiple_of(p * n + o, B), B)\n    tl.store(y + i, tl.load(x + j % n), mask=i < n)",
        Fault,
        "a multiple of 256 of what is none",
    ),
    "lanes that lie elsewhere": (
        "j = tl.max_contiguous(p * B + o // 4 * 4 + o * 3 % 4, 4)\n    tl.store(y + i, tl.load(x + j % n), mask=i < n)",
        Fault,
        "side by side which do not",
    ),
    "a mask that ends within four": (
        "tl.store(y + i, 1.0, mask=tl.max_constancy(i < n - 1, 4))",
        Fault,
        "are equal which are not",
    ),
    "the last to arrive, who may see what was before": (
        "tl.store(y + 10 + p, 1.0)\n    if tl.atomic_add(y, 1.0, sem='relaxed') == tl.num_programs(0) - 1:\n"
        "        tl.store(y + 1, tl.sum(tl.load(y + 10 + tl.arange(0, 4))))",
        Race,
        "is loaded by",
    ),
    "a loop that waits": (
        "while tl.load(x, volatile=True) != 7.5:\n        pass\n    tl.store(y + o, 0.0)",
        EndlessLoop,
        "never ends",
    ),
}


@pytest.mark.parametrize("order", ["forward", "reversed", "shuffled"])
@pytest.mark.parametrize("what", FAULTS)
def test_faults(what, order):
    body, fault, said = FAULTS[what]
    x, y = torch.randn(1000), torch.zeros(1000)
    with pytest.raises(fault) as found:
        evaluate(HEAD + f"    {body}\n", dict(x=x, y=y, n=1000), dict(B=256), (4,), order=order)
    assert said in str(found.value) or order != "forward"
    assert found.value.line >= 8  # within the body, behind two lines of imports


HARMLESS = {
    "a tile that wraps around where nobody looks": (
        "j = tl.max_contiguous(tl.multiple_of(i % n, B), B)\n    tl.store(y + i, tl.load(x + j), mask=i < n)"
    ),
    "a mask of fours": "tl.store(y + i, tl.load(x + i, mask=i < n), mask=tl.max_constancy(i < n, 4))",
    "an assumption that holds": ("tl.assume(n % 8 == 0)\n    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)"),
    "the same value": "tl.store(y + o, tl.load(x + o))",
    "shifted back over its neighbour": "j = tl.minimum(p * B, n - B) + o\n    tl.store(y + j, tl.load(x + j))",
    "atomic sums": "tl.atomic_add(y + o, tl.load(x + i, mask=i < n, other=0.0), mask=o < n)",
    "elements of two widths": (
        "tl.store((y + i).to(tl.pointer_type(tl.int32)), i, mask=i < n)\n"
        "    tl.store(y.to(tl.pointer_type(tl.int16)) + 2 * i, i.to(tl.int16), mask=i < n)"
    ),
    "an address that is a number": (
        "at = y.to(tl.int64) + p * 4 * B\n    tl.store(at.to(tl.pointer_type(tl.float32)) + o, 1.0, mask=i < n)"
    ),
    "off lanes far away": "tl.store(y + tl.where(i < n, i, 2000000000), 1.0, mask=i < n)",
    "the last to arrive": (
        "tl.store(y + 10 + p, 1.0)\n    if tl.atomic_add(y, 1.0) == tl.num_programs(0) - 1:\n"
        "        tl.store(y + 1, tl.sum(tl.load(y + 10 + tl.arange(0, 4))))"
    ),
    "a lock": (
        "while tl.atomic_cas(y, 0.0, 1.0) == 1.0:\n        pass\n"
        "    tl.store(y + 1, tl.load(y + 1) + 1)\n    tl.atomic_xchg(y, 0.0)"
    ),
}


@pytest.mark.parametrize("order", ["forward", "reversed", "shuffled"])
@pytest.mark.parametrize("what", HARMLESS)
def test_no_faults(what, order):
    x, y = torch.randn(1000), torch.zeros(1000)
    body = HARMLESS[what].replace("0.0, 1.0) == 1.0", "0, 1) == 1").replace("(y, 0.0)", "(y, 0)")
    y = y.to(torch.int32) if what == "a lock" else y
    buffers = evaluate(HEAD + f"    {body}\n", dict(x=x, y=y, n=1000), dict(B=256), (4,), order=order, inputs=("x",))
    assert not buffers.suspect


def test_a_race_behind_an_atomic_shows_in_another_order():
    """Each program makes an atomic operation, then stores its neighbour's part before its own."""
    body = "one = 1.0 + tl.atomic_add(x, 0.0)\n    tl.store(y + (i + B) % n, -one)\n    tl.store(y + i, one)"
    ends = []
    with pytest.raises(Race, match="is given another value"):  # nobody knows more by an atomic that gives nothing
        unread = body.replace("one = 1.0 + ", "").replace("one", "1.0")
        evaluate(HEAD + f"    {unread}\n", dict(x=torch.zeros(1), y=torch.zeros(1024), n=1024), dict(B=256), (4,))
    for order in ("forward", "reversed"):
        x, y = torch.zeros(1), torch.zeros(1024)
        evaluate(HEAD + f"    {body}\n", dict(x=x, y=y, n=1024), dict(B=256), (4,), order=order)
        ends.append(y.clone())
    assert not torch.equal(*ends)


def test_what_nothing_wrote_and_stores_to_inputs_are_noted():
    x, y = torch.randn(1000), torch.empty(1000)
    fill_with_poison(y)
    load = "tl.store(y + i, tl.load(y + i, mask=i < n) + 1, mask=i < n)"
    seen = evaluate(HEAD + f"    {load}\n", dict(x=x, y=y, n=1000), dict(B=256), (4,), fresh=("y",))
    assert "which nothing has written" in seen.suspect
    store = "tl.store(x + i, 1.0, mask=i < n)\n    tl.store(y + i, 1.0, mask=i < n)"
    seen = evaluate(HEAD + f"    {store}\n", dict(x=x, y=y, n=1000), dict(B=256), (4,), inputs=("x",))
    assert seen.suspect.endswith("of 'x', which is an input")


@pytest.mark.parametrize(
    ("between", "place", "late"),
    [
        ("", "B - 1 - o", True),  # in reversed order
        ("", "0", True),  # one number for all lanes
        ("", "o", False),  # what each lane has stored itself
        ("", "o ^ 1", False),  # by a neighbour within the warp
        ("tl.debug_barrier()", "B - 1 - o", False),
        ("v += tl.sum(v)", "B - 1 - o", False),  # warps wait for one another in a reduction
    ],
)
def test_a_load_of_what_another_warp_has_just_stored_is_suspect(between, place, late):
    body = f"v = tl.load(x + i)\n    tl.store(y + i, v)\n    {between or 'pass'}\n"
    body += f"    tl.store(y + i, tl.load(y + p * B + ({place})) + v)\n"
    x, y = torch.randn(1024), torch.zeros(1024)
    seen = evaluate(HEAD + f"    {body}", dict(x=x, y=y, n=1000), dict(B=256), (4,)).suspect
    assert ("which other lanes of it have just stored" in seen) == late


@pytest.mark.parametrize("grid, lanes, most", [((16, 490, 1), 64, 2), ((16, 490, 1), 4096, 490), ((4096, 4, 1), 64, 4)])
def test_a_grid_with_short_rows_of_small_programs_is_not_cut_at_each_row(grid, lanes, most):
    """490 chunks of 16 programs took 6 s where two take 0.1 s; where rows are large, addresses are evenly spaced."""
    run = GridRun.__new__(GridRun)
    run.compiled, run.grid, run.order = SimpleNamespace(waits=False, lanes=lanes), grid, "forward"
    chunks = list(run._split_grid())
    assert len(chunks) == most and torch.equal(torch.cat(chunks), torch.arange(grid[0] * grid[1], dtype=torch.int32))
