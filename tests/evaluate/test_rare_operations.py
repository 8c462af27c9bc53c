"""Operations that few kernels have: rows of a descriptor, descriptors that are chosen, functions of elements."""

import numpy as np
import pytest
import torch
from evaluated import evaluate

ROWS = """
@triton.jit
def kernel(x, rows, y, z):
    d = tl.make_tensor_descriptor(x, [40, 64], [64, 1], [1, 32])
    e = tl.make_tensor_descriptor(y, [40, 64], [64, 1], [1, 32])
    at = tl.load(rows + tl.arange(0, 16))
    part = d.gather(at, 32)
    e.scatter(part, at, 0)
    whole = tl.make_tensor_descriptor(z, [20, 64], [64, 1], [16, 32])
    whole.atomic_add([tl.program_id(0) * 8, 32], part)
"""


def test_a_descriptor_gathers_scatters_and_adds_rows_inside_of_its_tensor():
    x, y, z = torch.randn(40, 64), torch.zeros(40, 64), torch.zeros(20, 64)
    rows = torch.randperm(39)[:16].to(torch.int32)
    rows[5] = 40  # outside: nothing is read, nothing is written
    evaluate(ROWS, dict(x=x, rows=rows, y=y, z=z), {}, (1,))
    inside = rows[rows < 40].long()
    part = torch.zeros(16, 32)
    part[rows < 40] = x[inside, 32:]
    assert torch.equal(y[inside, :32], x[inside, 32:]) and y.count_nonzero() == 15 * 32
    assert torch.equal(z[:16, 32:], part) and z.count_nonzero() == 15 * 32


CHOSEN = """
@triton.jit
def kernel(x, y, out, n):
    d = tl.make_tensor_descriptor(x, [64], [1], [32])
    if (n > 3) & (tl.program_id(0) % 2 == 0):
        d = tl.make_tensor_descriptor(y, [40], [1], [32])
    tl.store(out + tl.program_id(0) * 32 + tl.arange(0, 32), d.load([32]))
"""


def test_each_program_reads_by_the_descriptor_that_it_chose():
    x, y, out = torch.arange(64.0), -torch.arange(40.0), torch.empty(4, 32)
    evaluate(CHOSEN, dict(x=x, y=y, out=out, n=7), {}, (4,))
    assert torch.equal(out[1], x[32:]) and torch.equal(out[3], x[32:])
    assert torch.equal(out[2][:8], y[32:]) and not out[2][8:].any()


MAPPED = """
@triton.jit
def f(a, b, c):
    if a > b:
        return a * 2 + c, b
    return b, a

@triton.jit
def halves(a, b):
    return a + b, a - b

@triton.jit
def kernel(x, y, PACK: tl.constexpr):
    o = tl.program_id(0) * 64 + tl.arange(0, 64)
    if PACK:
        (a,) = tl.map_elementwise(halves, tl.load(x + o), pack=2)
        tl.store(y + o, a)
    else:
        a, b = tl.map_elementwise(f, tl.load(x + o), tl.load(x + 128 + o), tl.program_id(0).to(tl.float32))
        tl.store(y + o, a - b)
"""


def test_a_function_of_elements_runs_for_each_lane():
    x, y = torch.randn(256), torch.empty(128)
    evaluate(MAPPED, dict(x=x, y=y), dict(PACK=False), (2,))
    a, b, c = x[:128], x[128:], torch.arange(2.0).repeat_interleave(64)
    assert torch.equal(y, torch.where(a > b, a * 2 + c - b, b - a))


def test_a_function_of_several_elements_gets_neighbours():
    x, y = torch.randn(256), torch.empty(128)
    evaluate(MAPPED, dict(x=x, y=y), dict(PACK=True), (2,))
    a, b = x[:128].view(-1, 2).unbind(1)
    assert torch.equal(y, torch.stack([a + b, a - b], 1).flatten())


SCALED = """
@triton.jit
def kernel(a, s, b, t, y):
    r, k, g = tl.arange(0, 64), tl.arange(0, 32), tl.arange(0, 2)
    av, sv = tl.load(a + r[:, None] * 32 + k), tl.load(s + r[:, None] * 2 + g)
    bv, tv = tl.load(b + r[:, None] * 64 + r), tl.load(t + r[:, None] * 2 + g)
    tl.store(y + r[:, None] * 64 + r, tl.dot_scaled(av, sv, "e2m1", bv, tv, "e4m3"))
"""


def test_a_scaled_product_decodes_halves_of_bytes_and_scales_of_groups():
    a, b = torch.randint(256, (64, 32), dtype=torch.uint8), torch.randn(64, 64).to(torch.float8_e4m3fn)
    s, t = (torch.randint(120, 134, (64, 2), dtype=torch.uint8) for _ in range(2))
    y = torch.empty(64, 64)
    evaluate(SCALED, dict(a=a, s=s, b=b, t=t, y=y), {}, (1,))
    table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    codes = np.stack([a.numpy() & 15, a.numpy() >> 4], -1).reshape(64, 64)
    left = np.where(codes > 7, -1, 1) * table[codes & 7] * np.repeat(2.0 ** (s.numpy() - 127.0), 32, 1)
    right = b.double().numpy() * np.repeat(2.0 ** (t.numpy() - 127.0), 32, 1).T
    assert (np.abs(y.numpy() - left @ right) <= 1e-5 * (np.abs(left) @ np.abs(right))).all()


UNSIGNED = """
@triton.jit
def kernel(x, y, out):
    o = tl.arange(0, 64)
    a, b = tl.load(x + o), tl.load(y + o)
    tl.store(out + o, {what})
"""


@pytest.mark.parametrize("what, right", [
    ("a // b", lambda a, b: a // b), ("a % b", lambda a, b: a % b),
    ("a.to(tl.float32).to(tl.uint64)", lambda a, b: a.astype(np.float32).astype(np.uint64)),
])  # fmt: skip
def test_unsigned_values_have_64_bits(what, right):
    generator = np.random.default_rng(1)
    a = generator.integers(0, 2**64, 64, dtype=np.uint64)
    a[:4] = 2**64 - 2**41, 2**63, 2**63 + 1, 5
    b = generator.integers(1, 2**64, 64, dtype=np.uint64) >> generator.integers(0, 60, 64, dtype=np.uint64)
    b |= np.uint64(1)
    out = torch.zeros(64, dtype=torch.uint64)
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    evaluate(UNSIGNED.format(what=what), dict(x=x, y=y, out=out), {}, (1,))
    assert np.array_equal(out.numpy(), right(a, b))


SEVERAL = """
@triton.jit
def kernel(x, y):
    o = tl.arange(0, 64)
    x_at, y_at = tl.cast(x, tl.int64) + o * 4, tl.cast(y, tl.int64) + o * 4
    at = tl.where(o % 2 == 0, x_at, y_at).to(tl.pointer_type(tl.float32))
    tl.store(x + 64 + o, tl.atomic_add(at, 1.0))
"""


def test_an_atomic_operation_may_meet_several_buffers():
    x, y = torch.arange(128.0), -torch.arange(64.0)
    before = torch.where(torch.arange(64) % 2 == 0, x[:64], y)
    evaluate(SEVERAL, dict(x=x, y=y), {}, (1,))
    even = (torch.arange(64) % 2 == 0).float()
    assert torch.equal(x[64:], before) and torch.equal(x[:64], torch.arange(64.0) + even)
    assert torch.equal(y, -torch.arange(64.0) + 1 - even)


ENDS = """
@triton.jit
def kernel(y, n):
    at = tl.arange(0, 16)
    least = tl.load(y + at, mask=at < n, other=-3.4028234663852886e38)
    tl.store(y + at, tl.maximum(least, tl.full((16,), -3.4028234663852886e38, tl.float32)))
    tl.store(y + at, tl.full((16,), 3.4028234663852886e38, tl.float32), mask=at >= 8)
"""


def test_the_largest_floats_are_constants_as_any():
    y = torch.full((16,), float("-inf"))
    evaluate(ENDS, dict(y=y, n=4), {}, (1,))
    largest = torch.finfo(torch.float32).max
    assert y.tolist() == [-largest] * 8 + [largest] * 8
