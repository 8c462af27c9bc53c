"""Values in the evaluator are those of the hardware: roundings, casts, integers, shapes, divergent loops."""

import numpy as np
import pytest
import torch
from evaluated import evaluate
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelsearch.evaluate.arithmetic import build_function
from kernelsearch.evaluate.faults import Unsupported
from kernelsearch.ir.text import Operation

HALF = """
@triton.jit
def kernel(x, y, out, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    a, b = tl.load(x + o), tl.load(y + o)
    c = a * b + a
    tl.store(out + o, (c - b * b) / (b + 3))
"""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_each_operation_on_16_bits_is_rounded(dtype):
    x, y = (torch.randn(8, 256).to(dtype) for _ in range(2))
    out = torch.empty_like(x)
    evaluate(HALF, dict(x=x, y=y, out=out), dict(B=256), (8,))
    assert torch.equal(out, (x * y + x - y * y) / (y + 3))


def test_a_reduction_rounds_each_step():
    x, out = torch.randn(8, 256).bfloat16(), torch.empty(8, dtype=torch.bfloat16)
    body = """
@triton.jit
def add(a, b):
    return a + b

@triton.jit
def kernel(x, out, B: tl.constexpr):
    p = tl.program_id(0)
    tl.store(out + p, tl.reduce(tl.load(x + p * B + tl.arange(0, B)), 0, add))
"""
    evaluate(body, dict(x=x, out=out), dict(B=256), (8,))
    while x.shape[1] > 1:
        x = x[:, : x.shape[1] // 2] + x[:, x.shape[1] // 2 :]
    assert torch.equal(out, x[:, 0])


INTEGERS = {
    "wraps at 8 bits": (
        "(a.to(tl.int8) * 3 + 100).to(tl.int32)",
        lambda n: n.astype(np.int8) * np.int8(3) + np.int8(100),
    ),
    "shifts without a sign": ("(a.to(tl.uint32) >> 3).to(tl.int32)", lambda n: n.view(np.uint32) >> 3),
    "divides toward zero": ("a // 7 + a % 7", lambda n: np.trunc(n / 7) + np.fmod(n, 7)),
    "saturates": (
        "(a.to(tl.float32) * 1e6).to(tl.int32)",
        lambda n: np.clip(np.float64(np.float32(n) * np.float32(1e6)), -(2**31), 2**31 - 1),
    ),
    "cut to 8 bits": (
        "(a.to(tl.float32) * 1e-6).to(tl.int8).to(tl.int32)",
        lambda n: np.trunc(n.astype(np.float32) * np.float32(1e-6)).astype(np.int64).astype(np.int8),
    ),
    "shifts 64 bits without a sign": (
        "(((a.to(tl.int64) << 32).to(tl.uint64) >> 33)).to(tl.int32)",
        lambda n: (n.astype(np.int64) << 32).view(np.uint64) >> np.uint64(33),
    ),
    "high half": ("tl.umulhi(a, a)", lambda n: n.view(np.uint32).astype(np.uint64) ** 2 >> np.uint64(32)),
    "shifts by its width": ("a.to(tl.uint32) << (a * 0 + 32)", lambda n: n * 0),
}


@pytest.mark.parametrize("what", INTEGERS)
def test_integers(what):
    text, expected = INTEGERS[what]
    x, out = torch.randint(-(2**31), 2**31 - 1, (64,), dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    body = f"""
@triton.jit
def kernel(x, out, B: tl.constexpr):
    o = tl.arange(0, B)
    a = tl.load(x + o)
    tl.store(out + o, {text})
"""
    evaluate(body, dict(x=x, out=out), dict(B=64), (1,))
    with np.errstate(all="ignore"):
        wanted = expected(x.numpy()).astype(np.int64).astype(np.int32)
    assert (out.numpy() == wanted).all()


def test_the_high_half_of_64_bits():
    x, y = (torch.randint(-(2**63), 2**63 - 1, (64,)) for _ in range(2))
    out = torch.zeros(64, dtype=torch.int64)
    body = """
@triton.jit
def kernel(x, y, out, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(out + o, tl.umulhi(tl.load(x + o), tl.load(y + o)))
"""
    evaluate(body, dict(x=x, y=y, out=out), dict(B=64), (1,))
    exact = [(a % 2**64) * (b % 2**64) >> 64 for a, b in zip(x.tolist(), y.tolist())]
    assert [n % 2**64 for n in out.tolist()] == exact


SHAPES = {
    "sort": ("tl.sort(a)", lambda x: x.sort(1).values),
    "gather": ("tl.gather(a, o ^ 1, 0)", lambda x: x[:, torch.arange(64) ^ 1]),
    "cumsum": ("tl.cumsum(a, 0)", lambda x: x.cumsum(1)),
    "flip": ("tl.flip(a, 0)", lambda x: x.flip(1)),
    "function": ("tl.erf(a)", torch.erf),
    "index of the largest": ("tl.argmax(a, 0).to(tl.float32) + a * 0", lambda x: x.argmax(1, True).expand(-1, 64)),
    "pairs": ("tl.reshape(tl.trans(tl.reshape(a, (32, 2))), (64,))", lambda x: x.reshape(-1, 32, 2).mT.reshape(-1, 64)),
    "random": ("tl.rand(7, o) * 0 + a", lambda x: x),
}


@pytest.mark.parametrize("what", SHAPES)
def test_shapes(what):
    text, expected = SHAPES[what]
    x = torch.randn(5, 64)
    out = torch.empty_like(x)
    body = f"""
@triton.jit
def kernel(x, out, B: tl.constexpr):
    o = tl.arange(0, B)
    a = tl.load(x + tl.program_id(0) * B + o)
    tl.store(out + tl.program_id(0) * B + o, {text})
"""
    evaluate(body, dict(x=x, out=out), dict(B=64), (5,), fresh=("out",))
    torch.testing.assert_close(out, expected(x).float())


def test_programs_that_leave_loops_and_branches_apart():
    lengths, x, out = torch.randint(0, 2000, (300,), dtype=torch.int32), torch.randn(300, 2000), torch.empty(300)
    body = """
@triton.jit
def kernel(x, lengths, out, B: tl.constexpr):
    p = tl.program_id(0)
    n, total = tl.load(lengths + p), 0.0
    if p == 3:
        return
    for start in range(0, n, B):
        cols = start + tl.arange(0, B)
        total += tl.sum(tl.load(x + p * 2000 + cols, mask=cols < n, other=0.0))
    steps = p
    while steps > 1:
        steps = steps // 2 if steps % 2 == 0 else 3 * steps + 1
    if n > 300:
        tl.store(out + p, total + steps)
    else:
        tl.store(out + p, -total)
"""
    evaluate(body, dict(x=x, lengths=lengths, out=out), dict(B=128), (300,))
    sums = torch.stack([row[:n].sum() for row, n in zip(x, lengths.tolist())])
    ends = torch.arange(300).clamp(max=1)
    right = torch.where(lengths > 300, sums + ends, -sums)
    right[3] = out[3]
    torch.testing.assert_close(out, right, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("kind", ["host", "device"])
def test_descriptors_leave_out_what_lies_outside(kind):
    x, out = torch.randn(100, 72), torch.full((128, 96), -1.0)
    made = "d" if kind == "host" else "tl.make_tensor_descriptor(d, [100, 72], [72, 1], [32, 32])"
    body = f"""
@triton.jit
def kernel(d, out, B: tl.constexpr):
    described = {made}
    i, o = tl.program_id(0) * B, tl.arange(0, B)
    for j in range(0, 96, B):
        tl.store(out + (i + o)[:, None] * 96 + j + o[None, :], described.load([i, j]))
"""
    given = TensorDescriptor(x, [100, 72], [72, 1], [32, 32]) if kind == "host" else x
    evaluate(body, dict(d=given, out=out), dict(B=32), (4,))
    right = torch.zeros(128, 96)
    right[:100, :72] = x
    assert torch.equal(out, right)


@pytest.mark.parametrize("precision, least", [("ieee", 0.0), ("tf32", 1e-4)])
def test_products(precision, least):
    a, b, c = torch.randn(32, 32), torch.randn(32, 32), torch.empty(32, 32)
    body = """
@triton.jit
def kernel(a, b, c, M: tl.constexpr, P: tl.constexpr):
    at = tl.arange(0, M)[:, None] * M + tl.arange(0, M)[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at), input_precision=P))
"""
    evaluate(body, dict(a=a, b=b, c=c), dict(M=32, P=precision), (1,))
    error = (c.double() - a.double() @ b.double()).abs().max()
    assert least <= error < 0.1 and (precision == "tf32" or error < 1e-5)


def test_lanes_that_are_off():
    out = torch.empty(2, 64)
    body = """
@triton.jit
def kernel(x, out, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(out + o, tl.load(x + o, mask=o < 10))
"""
    x = torch.ones(10)
    for row, undefined in zip(out, (False, True)):
        evaluate(body, dict(x=x, out=row), dict(B=64), (1,), undefined=undefined)
    assert (out[0, 10:] == 0).all() and (out[:, :10] == 1).all()
    assert out[1, 10::2].isnan().all() and (out[1, 11::2] == torch.finfo(torch.float32).max).all()


def test_what_only_looks_like_a_sum_is_none():
    x, out = torch.randn(4, 64), torch.zeros(4)
    body = """
@triton.jit
def twice(a, b):
    return a + a

@triton.jit
def kernel(x, out, B: tl.constexpr):
    p = tl.program_id(0)
    tl.store(out + p, tl.reduce(tl.load(x + p * B + tl.arange(0, B)), 0, twice))
"""
    evaluate(body, dict(x=x, out=out), dict(B=64), (4,))
    torch.testing.assert_close(out, x[:, 0] * 64)


@pytest.mark.parametrize("precision", ["tf32x3", "ieee"])
def test_names_are_no_attributes(precision):
    """`none` and `rtz` are names here, and three tf32 products stand for a float32 one."""
    x, out = torch.randn(32, 32), torch.zeros(32, 32)
    body = f"""
@triton.jit
def kernel(x, out, B: tl.constexpr):
    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    rtz = tl.load(x + at)
    none = tl.dot(rtz, rtz, input_precision="{precision}")
    tl.store(out + at, tl.clamp(none, -1e9, 1e9).to(tl.bfloat16).to(tl.float32) + rtz.to(tl.bfloat16).to(tl.float32))
"""
    evaluate(body, dict(x=x, out=out), dict(B=32), (1,))
    torch.testing.assert_close(out, (x @ x).bfloat16().float() + x.bfloat16().float(), rtol=0.01, atol=1e-3)


def test_a_tile_of_one_row_as_a_line():
    x, out = torch.randn(4, 64), torch.zeros(4, 64)
    body = """
@triton.jit
def kernel(x, out, B: tl.constexpr):
    made = tl.make_tensor_descriptor(x, [4, 64], [64, 1], [1, B])
    p = tl.program_id(0)
    line = tl.reshape(made.load([p, 0]), (B,))
    tl.store(out + p * B + tl.arange(0, B), line)
"""
    evaluate(body, dict(x=x, out=out), dict(B=64), (4,))
    assert torch.equal(out, x)


LIBRARY = {
    "__nv_tanhf": torch.tanh,
    "__nv_fast_expf": torch.exp,
    "__nv_fdiv_rn": torch.div,
    "__nv_fabsf": torch.abs,
    "__nv_float2int_rz": lambda x: x.trunc().to(torch.int32),
}


@pytest.mark.parametrize("symbol", LIBRARY)
def test_functions_of_libdevice(symbol):
    count, kind = (2 if "div" in symbol else 1), "i32" if "int" in symbol else "f32"
    text = f' %a {{libname = "", symbol = "{symbol}"}} : (tensor<9xf32>) -> tensor<9x{kind}>'
    values = [torch.linspace(-3, 4, 9)] * count
    function = build_function(Operation("tt.extern_elementwise", ["%r"], ["%a"], text))
    torch.testing.assert_close(function(*values), LIBRARY[symbol](*values))


FAST = {"sin": (1000.0, 2e-5), "exp": (60.0, 2e-6), "tanh": (0.5, 1e-4), "log": (1.0001, 8e-8)}


@pytest.mark.parametrize("name", FAST)
def test_fast_functions_err_in_float32_as_the_hardware_does_and_not_in_float64(name):
    value, error = FAST[name]
    errors = []
    for kind, dtype in (("f32", torch.float32), ("f64", torch.float64)):
        text = f' %a {{libname = "", symbol = "__nv_fast_{name}f"}} : (tensor<512x{kind}>) -> tensor<512x{kind}>'
        x = torch.linspace(value, 1.01 * value, 512).to(dtype)
        right = getattr(torch, name)(x.double())
        made = build_function(Operation("tt.extern_elementwise", ["%r"], ["%a"], text))(x).double()
        errors.append(float(((made - right).abs() / right.abs().clamp(min=1.0)).max()))
    assert error / 8 < errors[0] < 8 * error and errors[1] < 1e-14, errors


def test_a_function_that_is_not_known_is_named():
    with pytest.raises(Unsupported, match="__nv_byte_perm"):
        build_function(Operation("tt.extern_elementwise", ["%r"], ["%a"], ' symbol = "__nv_byte_perm" : i32'))
