"""Functions of libdevice in Triton's interpreter, which has none of them: its stubs return None.

Each is worked out in float64 and rounded once to its result's type, so it errs less than CUDA's guide allows the
library ("Mathematical Functions", CUDA C++ Programming Guide); the `fast_` forms are as exact as the others here. Types
are the library's own: Triton's declarations say what each takes and gives. Not done: what works on bits or words
(`byte_perm`, `mulhi`, ...), Bessel functions of the first and second kind (torch's err by 1e-8), directed rounding of
float64; they raise, with their name.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import torch
import triton.language.extra.cuda.libdevice as declared
import triton.language.extra.libdevice as stubs
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle
from triton.runtime.interpreter import interpreter_builder as builder

from kernelsearch.kernel.language import LIBDEVICE

Compute = Callable[..., Any]


def install() -> None:
    """Once for this process."""
    for name in LIBDEVICE:
        declaration = getattr(declared, name, None)
        if declaration is not None and not hasattr(declaration, "runs_here"):
            function = _function(name, declaration, FUNCTIONS.get(name))
            setattr(declared, name, function)
            setattr(stubs, name, function)


def _function(name: str, declaration: Any, compute: Compute | None) -> Any:
    @wraps(declaration)
    def function(*args: Any, **_: Any) -> Any:
        if compute is None:
            raise NotImplementedError(f"libdevice.{name} is not known here without a GPU")
        builder.create_extern_elementwise = lambda *asked: _applied(compute, asked[3], asked[4])
        try:
            return declaration(*args, _semantic=interpreter.interpreter_semantic)
        finally:
            del builder.create_extern_elementwise

    function.runs_here = True
    return function


def _applied(compute: Compute, handles: list[Any], kind: Any) -> Any:
    """The handle of a result; through the builder's own operations, so that it is counted and followed as they are."""
    found = interpreter._get_np_dtype(kind)

    def exactly(*arrays: Any) -> Any:
        wide = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]
        return np.asarray(_rounded(compute, wide, found))

    exactly.is_special = True
    wider = np.dtype(found).itemsize > min(h.data.dtype.itemsize for h in handles)
    if len(handles) > 3 or wider:  # which those operations do not give
        return TensorHandle(exactly(*(h.data for h in handles)), kind.scalar)
    apply = (builder.unary_op, builder.binary_op, builder.ternary_op)[len(handles) - 1]
    return TensorHandle(apply(*handles, exactly).data, kind.scalar)


def _rounded(compute: Compute, wide: list[Any], found: Any) -> Any:
    direction = getattr(compute, "direction", None)
    if direction is None:
        return np.asarray(compute(*wide)).astype(found)
    value = np.asarray(compute(*wide))
    if np.dtype(found) != np.float32:
        raise NotImplementedError("directed rounding of float64 is not known here without a GPU")
    return _toward(value, direction)


def _toward(value: Any, direction: str) -> Any:
    """float64 as float32, rounded down (`d`), up (`u`) or to zero (`z`)."""
    near = value.astype(np.float32)
    aim = {"d": np.full_like(near, -np.inf), "u": np.full_like(near, np.inf), "z": np.zeros_like(near)}[direction]
    over = {"d": near > value, "u": near < value, "z": np.abs(near) > np.abs(value)}[direction]
    return np.where(over, np.nextafter(near, aim), near)


def _directed(compute: Compute, direction: str) -> Compute:
    def directed(*args: Any) -> Any:
        return compute(*args)

    if direction != "n":
        directed.direction = direction
    return directed


def _torch(function: Callable[..., torch.Tensor]) -> Compute:
    return lambda x: function(torch.from_numpy(np.ascontiguousarray(x))).numpy().reshape(np.shape(x))


def _half_away(x: Any) -> Any:
    return np.copysign(np.trunc(np.abs(x)) + (np.abs(x) - np.trunc(np.abs(x)) >= 0.5), x)


def _gamma(x: Any) -> Any:
    whole = _torch(torch.lgamma)(x)
    sign = np.where((x < 0) & (np.floor(x) % 2 != 0), -1.0, 1.0)
    return np.where((x < 0) & (x == np.floor(x)), np.nan, sign * np.exp(whole))


def _integral(compute: Compute, bits: int, signed: bool = True) -> Compute:
    """To an integer, held at the ends of its range, as the hardware's conversion does; NaN gives 0."""
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    kind = np.dtype(f"{'' if signed else 'u'}int{bits}")

    def convert(x: Any) -> Any:
        value = np.nan_to_num(compute(x), nan=0.0, posinf=2.0**70, neginf=-(2.0**70))
        inside = np.clip(value, low, np.nextafter(float(high), 0) if bits == 64 else high).astype(kind)
        return np.where(value >= high, kind.type(high), inside)

    return convert


def _power(x: Any, y: Any) -> Any:
    return np.power(x, y.astype(np.float64))


_DIRECTIONS = {"n": np.rint, "d": np.floor, "u": np.ceil, "z": np.trunc}
_ROUNDED: dict[str, Compute] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
    "rcp": lambda x: 1.0 / x,
    "fma": lambda x, y, z: x * y + z,
}
_INTEGERS = {"int": (32, True), "uint": (32, False), "ll": (64, True), "ull": (64, False)}

FUNCTIONS: dict[str, Compute] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2.0)),
    "cyl_bessel_i0": _torch(torch.special.i0),
    "cyl_bessel_i1": _torch(torch.special.i1),
    "erf": _torch(torch.erf),
    "erfc": _torch(torch.erfc),
    "erfcinv": lambda x: -_torch(torch.special.ndtri)(x / 2) / np.sqrt(2.0),
    "erfcx": _torch(torch.special.erfcx),
    "erfinv": _torch(torch.erfinv),
    "exp": np.exp,
    "exp10": lambda x: np.power(10.0, x),
    "exp2": np.exp2,
    "expm1": np.expm1,
    "fast_cosf": np.cos,
    "fast_dividef": np.divide,
    "fast_exp10f": lambda x: np.power(10.0, x),
    "fast_expf": np.exp,
    "fast_log10f": np.log10,
    "fast_log2f": np.log2,
    "fast_logf": np.log,
    "fast_powf": _power,
    "fast_sinf": np.sin,
    "fast_tanf": np.tan,
    "fast_tanhf": np.tanh,
    "fdim": lambda x, y: np.maximum(x - y, 0.0),
    "finitef": np.isfinite,
    "float_as_int": lambda x: x.astype(np.float32).view(np.int32),
    "float_as_uint": lambda x: x.astype(np.float32).view(np.uint32),
    "floor": np.floor,
    "fma": lambda x, y, z: x * y + z,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "int_as_float": lambda x: x.view(np.float32),
    "isfinited": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "ldexp": np.ldexp,
    "lgamma": _torch(torch.lgamma),
    "llrint": _integral(np.rint, 64),
    "llround": _integral(_half_away, 64),
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "logb": lambda x: np.floor(np.log2(np.abs(x))),
    "nearbyint": np.rint,
    "norm3d": lambda x, y, z: np.sqrt(x * x + y * y + z * z),
    "norm4d": lambda a, b, c, d: np.sqrt(a * a + b * b + c * c + d * d),
    "normcdf": _torch(torch.special.ndtr),
    "normcdfinv": _torch(torch.special.ndtri),
    "pow": _power,
    "rcbrt": lambda x: 1.0 / np.cbrt(x),
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "rhypot": lambda x, y: 1.0 / np.hypot(x, y),
    "rint": np.rint,
    "rnorm3d": lambda x, y, z: 1.0 / np.sqrt(x * x + y * y + z * z),
    "rnorm4d": lambda a, b, c, d: 1.0 / np.sqrt(a * a + b * b + c * c + d * d),
    "round": _half_away,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "rsqrt_rn": lambda x: 1.0 / np.sqrt(x),
    "saturatef": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0.0, 1.0),
    "scalbn": np.ldexp,
    "signbit": np.signbit,
    "sin": np.sin,
    "sinh": np.sinh,
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2.0)),
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "tgamma": _gamma,
    "trunc": np.trunc,
    "uint_as_float": lambda x: x.view(np.float32),
    **{f"{name}_r{d}": _directed(compute, d) for name, compute in _ROUNDED.items() for d in _DIRECTIONS},
    **{
        f"{real}2{name}_r{d}": _integral(compute, *kind)
        for real in ("float", "double")
        for name, kind in _INTEGERS.items()
        for d, compute in _DIRECTIONS.items()
    },
    **{f"{name}2{real}_rn": np.positive for real in ("float", "double") for name in _INTEGERS},
}
"""By name, on float64 (integers as they are). Powers of integers and roundings follow the declared types."""
