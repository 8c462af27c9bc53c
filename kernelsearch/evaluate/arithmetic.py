"""Element-wise operations of TTIR as torch operations with the results of the hardware, bit for bit where it is exact.

Values have the IR's types: 16-bit floats are rounded after each operation, integers wrap, i1 is bool. Functions that a
GPU approximates (`ex2.approx`, divisions) are those of torch; a contraction to fma happens after TTIR.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from kernelsearch.evaluate import libdevice
from kernelsearch.evaluate.faults import Unsupported
from kernelsearch.ir.text import Operation

Tensor = torch.Tensor
DTYPES = {
    "i1": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
    "f8E5M2": torch.float8_e5m2, "f8E4M3FN": torch.float8_e4m3fn, "f8E4M3FNUZ": torch.float8_e4m3fnuz,
    "f8E5M2FNUZ": torch.float8_e5m2fnuz, "index": torch.int64,
}  # fmt: skip
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integers of so many bytes."""
SMALL_FLOATS = (torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
"""Floats with few operations in torch: what moves them moves their bits."""


def dtype_of(element: str) -> torch.dtype:
    """The dtype of an element type; of a pointer, that of addresses. Raises Unsupported for those torch lacks."""
    if element.startswith("*"):
        return torch.int64
    if element not in DTYPES:
        raise Unsupported(f"values of type {element}")
    return DTYPES[element]


def where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Elements of a where the condition holds, else of b; a condition for each program if it has fewer axes."""
    if condition.dim() < a.dim():
        condition = condition.reshape(-1, *(1,) * (a.dim() - 1))
    if a.dtype in SMALL_FLOATS:
        return torch.where(condition, a.view(torch.int8), b.view(torch.int8)).view(a.dtype)
    return torch.where(condition, a, b)


# ---------------------------------------------------------------- integers


def as_unsigned(x: Tensor) -> Tensor:
    """The same bits as int64 that are not negative; 64 bits stay as they are."""
    if x.dtype in (torch.bool, torch.int64):
        return x.to(torch.int64)
    return x.to(torch.int64) & ((1 << (8 * x.element_size())) - 1)


def _as_uint64(x: Tensor) -> np.ndarray:
    return x.contiguous().numpy().view(np.uint64)


def _divide(a: Tensor, b: Tensor, rounding: str = "trunc") -> Tensor:
    return torch.div(a, torch.where(b == 0, torch.ones_like(b), b), rounding_mode=rounding)  # undefined on a GPU


def _remainder(a: Tensor, b: Tensor) -> Tensor:
    return torch.fmod(a, torch.where(b == 0, torch.ones_like(b), b))


def _shift(shifted: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """As PTX's shl and shr of unsigned values: by the width or more gives 0."""

    def shift(a: Tensor, b: Tensor) -> Tensor:
        width = 8 * a.element_size()
        inside = (b >= 0) & (b < width)
        return torch.where(inside, shifted(a, torch.where(inside, b, torch.zeros_like(b))), torch.zeros_like(a))

    return shift


def _shift_right(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype == torch.int64:  # the bits that the sign has brought in are cut off
        return torch.where(b == 0, a, (a >> b) & ~(torch.full_like(a, -1) << (64 - b.clamp(min=1))))
    return (as_unsigned(a) >> b.to(torch.int64)).to(a.dtype)


def _unsigned(operation: Callable[[Any, Any], Any]) -> Callable[[Tensor, Tensor], Tensor]:
    """A division of whole numbers as one of unsigned ones; by 0 it is undefined on a GPU."""

    def divide(a: Tensor, b: Tensor) -> Tensor:
        if a.dtype != torch.int64:
            return operation(as_unsigned(a), as_unsigned(b).clamp(min=1)).to(a.dtype)
        return torch.from_numpy(operation(_as_uint64(a), _as_uint64(b.where(b != 0, 1))).view(np.int64))

    return divide


def _multiply_high(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype == torch.int64:  # by halves of 32 bits, whose sums fit into 64 without a sign
        (a1, a0), (b1, b0) = ((v >> 32 & _LOW, v & _LOW) for v in (a, b))
        first = a1 * b0 + (a0 * b0 >> 32 & _LOW)
        second = (first & _LOW) + a0 * b1
        return a1 * b1 + (first >> 32 & _LOW) + (second >> 32 & _LOW)
    return ((as_unsigned(a) * as_unsigned(b)) >> 32).to(a.dtype)


_LOW = 0xFFFFFFFF
_COMPARE = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}


def compare_integers(kind: str, a: Tensor, b: Tensor) -> Tensor:
    """`arith.cmpi` of a kind such as `slt`."""
    if kind in ("eq", "ne"):
        return _COMPARE[kind](a, b)
    if kind[0] == "u":
        flip = -(2**63)
        a, b = (a ^ flip, b ^ flip) if a.dtype == torch.int64 else (as_unsigned(a), as_unsigned(b))
    elif a.dtype == torch.bool:
        a, b = -a.to(torch.int8), -b.to(torch.int8)
    return _COMPARE[kind[1:]](a, b)


def compare_floats(kind: str, a: Tensor, b: Tensor) -> Tensor:
    """`arith.cmpf` of a kind such as `olt`, `ueq`, `uno`."""
    if kind in ("ord", "uno"):
        either = a.isnan() | b.isnan()
        return ~either if kind == "ord" else either
    made = _COMPARE[kind[1:]](a, b)
    if kind == "one" or (kind[0] == "u" and kind != "une"):
        either = a.isnan() | b.isnan()
        made = made & ~either if kind == "one" else made | either
    return made


# ---------------------------------------------------------------- floats


def fuse(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """a * b + c with one rounding; of float64 with two."""
    wide = torch.float64 if a.dtype in (torch.float32, torch.float64) else torch.float32
    return (a.to(wide) * b.to(wide) + c.to(wide)).to(a.dtype)


def round_tf32(x: Tensor) -> Tensor:
    """What a matrix unit reads of float32 values: the upper 19 bits."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def _to_integers(x: Tensor, dtype: torch.dtype, signed: bool) -> Tensor:
    """As PTX's cvt.rzi: toward zero, saturating; NaN becomes 0, or the lowest value for 64 bits or from float64."""
    bits = max(torch.iinfo(dtype).bits if dtype != torch.bool else 1, 16)  # cvt has no 8 bits: st.b8 keeps the low ones
    wide = x.to(torch.float64).trunc()
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    special = 0 if bits < 64 and x.dtype != torch.float64 else -(2 ** (bits - 1))
    top = wide >= float(high)
    made = torch.where(top | wide.isnan(), 0.0, wide.clamp(float(low), float(high)))
    unsigned = bits == 64 and not signed
    made = torch.from_numpy(made.numpy().astype(np.uint64).view(np.int64)) if unsigned else made.to(torch.int64)
    made = torch.where(top, high if high < 2**63 else -1, made)
    return torch.where(wide.isnan(), special, made).to(dtype)


def _to_floats(x: Tensor, dtype: torch.dtype, toward_zero: bool) -> Tensor:
    if toward_zero and dtype == torch.bfloat16:
        return (x.contiguous().view(torch.int32) & -65536).view(torch.float32).to(dtype)
    if toward_zero and dtype == torch.float16:
        near = x.to(dtype)
        return torch.where(near.to(x.dtype).abs() > x.abs(), torch.nextafter(near, torch.zeros_like(near)), near)
    if dtype in SMALL_FLOATS and x.dtype not in SMALL_FLOATS:  # cvt.rn.satfinite
        top = torch.finfo(dtype).max
        x = (x if x.dtype == torch.float64 else x.to(torch.float32)).clamp(-top, top)
    return x.to(dtype)


def build_cast(op: Operation) -> Callable[[Tensor], Tensor]:
    """A conversion between the types of an operation, as a function of the value."""
    plain, source, target = op.name.partition(".")[2], op.types[0].element, op.types[-1].element
    dtype = dtype_of(target)
    if plain in ("extf", "truncf", "fp_to_fp"):
        return lambda x: _to_floats(x, dtype, "rounding = rtz" in op.text)
    if plain in ("fptosi", "fptoui"):
        return lambda x: _to_integers(x, dtype, plain == "fptosi")
    if plain == "uitofp" and source == "i64":
        return lambda x: torch.from_numpy(_as_uint64(x).astype(np.float64 if target == "f64" else np.float32)).to(dtype)
    if plain in ("extui", "uitofp", "index_castui"):
        return lambda x: as_unsigned(x).to(dtype)
    if plain in ("extsi", "sitofp") and source == "i1":
        return lambda x: (-x.to(torch.int8)).to(dtype)
    if plain == "trunci" and target == "i1":
        return lambda x: (x & 1).to(torch.bool)
    if plain == "bitcast" and not target.startswith("*"):
        if target == "i1":
            return lambda x: x.view(torch.uint8).view(dtype)
        return lambda x: x.contiguous().view(dtype)
    return lambda x: x.to(dtype)


CASTS = frozenset(
    "arith.extf arith.truncf tt.fp_to_fp arith.fptosi arith.fptoui arith.extsi arith.extui arith.trunci arith.sitofp "
    "arith.uitofp tt.bitcast arith.bitcast tt.ptr_to_int arith.index_cast arith.index_castui".split()
)
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "arith.addf": torch.add, "arith.subf": torch.sub, "arith.mulf": torch.mul, "arith.divf": torch.div,
    "tt.precise_divf": torch.div, "arith.remf": torch.fmod, "arith.maxnumf": torch.fmax, "arith.minnumf": torch.fmin,
    "arith.maximumf": torch.maximum, "arith.minimumf": torch.minimum, "math.powf": torch.pow,
    "math.copysign": torch.copysign,
    "arith.addi": lambda a, b: a ^ b if a.dtype == torch.bool else a + b,
    "arith.subi": lambda a, b: a ^ b if a.dtype == torch.bool else a - b,
    "arith.muli": lambda a, b: a & b if a.dtype == torch.bool else a * b,
    "arith.andi": torch.bitwise_and, "arith.ori": torch.bitwise_or, "arith.xori": torch.bitwise_xor,
    "arith.divsi": _divide, "arith.remsi": _remainder,
    "arith.divui": _unsigned(operator.floordiv), "arith.remui": _unsigned(operator.mod),
    "arith.floordivsi": lambda a, b: _divide(a, b, "floor"),
    "arith.ceildivsi": lambda a, b: -_divide(-a, b, "floor"),
    "arith.ceildivui": _unsigned(lambda a, b: a // b + (a % b > 0)),
    "arith.maxsi": torch.maximum, "arith.minsi": torch.minimum,
    "arith.maxui": lambda a, b: torch.where(compare_integers("ugt", a, b), a, b),
    "arith.minui": lambda a, b: torch.where(compare_integers("ult", a, b), a, b),
    "arith.shli": _shift(torch.bitwise_left_shift),
    "arith.shrui": _shift(_shift_right),
    "arith.shrsi": lambda a, b: a >> b.clamp(0, 8 * a.element_size() - 1),
    "tt.mulhiui": _multiply_high,
}  # fmt: skip
UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "math.exp": torch.exp, "math.exp2": torch.exp2, "math.log": torch.log, "math.log2": torch.log2,
    "math.sqrt": torch.sqrt, "tt.precise_sqrt": torch.sqrt, "math.rsqrt": torch.rsqrt, "math.sin": torch.sin,
    "math.cos": torch.cos, "math.erf": torch.erf, "math.tanh": torch.tanh, "math.absf": torch.abs,
    "math.absi": torch.abs, "math.floor": torch.floor, "math.ceil": torch.ceil, "arith.negf": torch.neg,
    "math.log1p": torch.log1p, "math.expm1": torch.expm1, "math.trunc": torch.trunc, "math.roundeven": torch.round,
}  # fmt: skip
_FOLDED = {
    "arith.maxnumf": "amax", "arith.minnumf": "amin", "arith.maxsi": "amax", "arith.minsi": "amin",
}  # fmt: skip
"""Reductions by one operation for which torch has its own, with the same result in any order."""


def build_function(op: Operation) -> Callable[..., Tensor]:
    """The function of libdevice that an operation calls, of as many values as it has operands."""
    found = re.search(r'symbol = "(\w+)"', op.text)
    symbol, dtype = found[1] if found else op.text, dtype_of(op.types[-1].element)
    function = libdevice.find_function(symbol, dtype == torch.float32)
    directed = symbol[-1] in "duz" and "_r" in symbol and dtype == torch.float64
    if function is None or directed or symbol.startswith(("__nv_uint2", "__nv_ull2")):
        raise Unsupported(f"libdevice: {symbol}")

    def call(*values: Tensor) -> Tensor:
        wide = (v.to(torch.float64) if v.is_floating_point() else v for v in torch.broadcast_tensors(*values))
        with np.errstate(all="ignore"):
            return torch.from_numpy(np.array(function(*(v.numpy() for v in wide)))).to(dtype)

    return call


_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def build_scaled_product(op: Operation) -> Callable[..., Tensor]:
    """`tt.dot_scaled`: a product of small floats, groups of which along the inner axis share a scale."""
    left, _, right = op.text.partition(" lhs = ")[0].partition(",")
    kinds, types = re.findall(r"[lr]hs = (\w+)", op.text), list(op.types)

    def decode(value: Tensor, scale: Tensor | None, kind: str, axis: int, along: int) -> Tensor:
        if kind == "e2m1":  # two in a byte, the low one first
            whole = as_unsigned(value)
            value = torch.stack([_E2M1[whole & 15], _E2M1[whole >> 4]], along % value.dim() + 1)
            value = value.flatten(along % whole.dim(), along % whole.dim() + 1)
        elif value.dtype == torch.int8:
            value = value.view({"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[kind])
        value = value.to(torch.float32)
        if scale is None:
            return value
        power = (as_unsigned(scale) - 127).to(torch.float32).exp2().where(as_unsigned(scale) != 255, torch.nan)
        factor = (power if scale.dtype == torch.int8 else scale.to(torch.float32)).repeat_interleave(
            value.shape[axis] // scale.shape[-1], -1
        )
        return value * (factor if axis == -1 else factor.mT)

    def multiply(*values: Tensor) -> Tensor:
        rest = [v.expand(v.shape[0], *kind.shape) for v, kind in zip(values, types, strict=False)]
        a, a_scale = rest.pop(0), rest.pop(0) if " scale " in left else None
        b, b_scale = rest.pop(0), rest.pop(0) if " scale " in right else None
        a = decode(a, a_scale, kinds[0], -1, -1 if op.integer("lhs_k_pack", 1) else -2)
        b = decode(b, b_scale, kinds[1], -2, -2 if op.integer("rhs_k_pack", 1) else -1)
        return (rest[0].to(torch.float32) + a @ b).to(rest[0].dtype)

    return multiply


def is_plain(op: Operation) -> bool:
    """Whether a reduction or scan combines two elements by one operation on just these."""
    block = op.regions[0][-1]
    return len(block.ops) == 2 and sorted(block.ops[0].operands) == sorted(block.args)


def reduce_at_once(op: Operation, value: Tensor, axis: int, full: Callable[[], Tensor]) -> Tensor | None:
    """A reduction by one plain operation, None where torch has none that gives the same."""
    inner = op.regions[0][-1].ops
    if not is_plain(op):
        return None
    name, element = inner[0].name, op.types[0].element
    if name in _FOLDED and value.dtype != torch.bool and value.dtype not in SMALL_FLOATS:
        made = getattr(torch, _FOLDED[name])(value, dim=axis)
        return None if name.endswith("numf") and bool(made.isnan().any()) else made  # maxnum ignores NaN, amax does not
    if (name == "arith.addf" and element in ("f32", "f64")) or (name == "arith.addi" and element != "i1"):
        return full().sum(dim=axis, dtype=value.dtype)
    return None


def read_constant(op: Operation) -> Tensor:
    """The value of `arith.constant`, with axes of size 1. Raises Unsupported for tables."""
    text = op.text if " : " in op.text else f"{op.text} : i1"
    (kind,) = op.types[-1:] or ((),)
    shape, element = (kind.shape, kind.element) if kind else ((), "i1")
    found = re.search(r"(?:dense<)?\"?(\[.*\]|[-\w.+]+)\"?>? :", text)
    raw, dtype, one = found[1] if found else "[", dtype_of(element), (1,) * (1 + len(shape))
    if raw.startswith("["):
        raise Unsupported("a table of constants")
    if raw in ("true", "false"):
        return torch.full(one, raw == "true")
    if dtype.is_floating_point and raw.startswith("0x"):
        size = torch.empty((), dtype=dtype).element_size()
        bits = int(raw, 16)
        bits -= (bits >> (8 * size - 1)) << (8 * size)
        return torch.full(one, bits, dtype=BITS[size]).view(dtype)
    if dtype.is_floating_point:  # the text is rounded to nine digits: the largest float32 is larger there than it is
        return torch.full(one, float(raw), dtype=torch.float64).to(dtype)
    return torch.full(one, int(raw, 0), dtype=dtype)
