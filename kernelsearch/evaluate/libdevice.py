"""Functions of libdevice on a CPU.

Each is computed in float64 and rounded once to its result's type, so it errs less than CUDA's guide allows the library
("Mathematical Functions", CUDA C++ Programming Guide). The `fast_` forms of float32 err as the approximations of the
hardware that they are made of (`sin.approx`, `ex2.approx`, `lg2.approx`, `tanh.approx`, PTX ISA). Not done: functions
on bits or words (`byte_perm`, `mulhi`, ...), Bessel functions of the first and second kind (torch's err by 1e-8),
directed rounding of float64.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

Compute = Callable[..., Any]


def find_function(symbol: str, narrow: bool = False) -> Compute | None:
    """The function of `__nv_fast_expf`, `__ocml_exp_f32` etc. on float64 (integers unchanged); None if unknown.

    narrow: a `fast_` form errs as it does in float32.
    """
    plain, known = re.sub(r"^__(nv|ocml|ockl)_|_f(16|32|64)$", "", symbol), {**FUNCTIONS, **(FAST if narrow else {})}
    return next((known[name] for name in _list_names(plain) if name in known), None)


def _list_names(symbol: str) -> Iterator[str]:
    """The names that Triton may give a symbol, whose float32 form ends or begins with `f`."""
    yield symbol
    yield symbol.removesuffix("f")
    if rounded := re.fullmatch(r"[fd]?(add|sub|mul|div|sqrt|rcp|rsqrt|ma|fma)f?(_r[nduz])", symbol):
        yield {"ma": "fma"}.get(rounded[1], rounded[1]) + rounded[2]
    known = {"fabs": "abs", "fast_fdivide": "fast_dividef", "powi": "pow", "isnand": "isnan", "isinfd": "isinf"}
    yield known.get(symbol.removesuffix("f"), "")


def _round_directed(compute: Compute, direction: str) -> Compute:
    """The function with its float64 result as float32, rounded down (`d`), up (`u`) or to zero (`z`)."""

    def directed(*args: Any) -> Any:
        value = np.asarray(compute(*args))
        near = value.astype(np.float32)
        aim = {"d": np.full_like(near, -np.inf), "u": np.full_like(near, np.inf), "z": np.zeros_like(near)}[direction]
        beyond = {"d": near > value, "u": near < value, "z": np.abs(near) > np.abs(value)}[direction]
        return np.where(beyond, np.nextafter(near, aim), near)

    return directed


def _torch(function: Callable[..., torch.Tensor]) -> Compute:
    return lambda x: function(torch.from_numpy(np.ascontiguousarray(x))).numpy().reshape(np.shape(x))


def _half_away(x: Any) -> Any:
    return np.copysign(np.trunc(np.abs(x)) + (np.abs(x) - np.trunc(np.abs(x)) >= 0.5), x)


def _gamma(x: Any) -> Any:
    size = np.exp(_torch(torch.lgamma)(x))
    sign = np.where((x < 0) & (np.floor(x) % 2 != 0), -1.0, 1.0)
    return np.where((x < 0) & (x == np.floor(x)), np.nan, sign * size)


def _integral(compute: Compute, bits: int, signed: bool = True) -> Compute:
    """To an integer, clipped to the ends of its range, as the hardware's conversion does; NaN gives 0."""
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    kind = np.dtype(f"{'' if signed else 'u'}int{bits}")

    def convert(x: Any) -> Any:
        value = np.nan_to_num(compute(x), nan=0.0, posinf=2.0**70, neginf=-(2.0**70))
        inside = np.clip(value, low, np.nextafter(float(high), 0) if bits == 64 else high).astype(kind)
        return np.where(value >= high, kind.type(high), inside)

    return convert


def _power(x: Any, y: Any) -> Any:
    return np.power(x, y.astype(np.float64))


def _root_of_squares(*values: Any) -> Any:
    return np.sqrt(sum(x * x for x in values))


_SAME_IN_NUMPY = (
    "abs cbrt ceil copysign cos cosh exp exp2 expm1 floor fmod hypot isinf isnan ldexp log log10 log1p log2 rint "
    "signbit sin sinh sqrt tan tanh trunc"
).split()
_NEAREST: dict[str, Compute] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt,
    "rcp": lambda x: 1.0 / x, "fma": lambda x, y, z: x * y + z,
}  # fmt: skip
_DIRECTIONS = {"n": np.rint, "d": np.floor, "u": np.ceil, "z": np.trunc}
DIRECTED = {f"{name}_r{d}": _round_directed(compute, d) for name, compute in _NEAREST.items() for d in "duz"}
_INTEGERS = {"int": (32, True), "uint": (32, False), "ll": (64, True), "ull": (64, False)}


def _single(x: Any) -> Any:
    return np.asarray(x).astype(np.float32).astype(np.float64)


def _turn(compute: Compute) -> Compute:
    """A function of an angle whose number of turns is rounded to float32; the result's absolute error is 2**-21."""
    return lambda x: np.rint(compute(2 * np.pi * np.fmod(_single(x / (2 * np.pi)), 1.0)) * 2.0**21) / 2.0**21


def _approximate_log2(x: Any) -> Any:
    y = np.log2(x)
    return np.where(np.abs(y) < 1.0, np.rint(y * 2.0**22) / 2.0**22, y)


FAST: dict[str, Compute] = {
    "fast_sinf": _turn(np.sin),
    "fast_cosf": _turn(np.cos),
    "fast_tanf": lambda x: _turn(np.sin)(x) / _turn(np.cos)(x),
    "fast_expf": lambda x: np.exp2(_single(x * np.log2(np.e))),
    "fast_exp10f": lambda x: np.exp2(_single(x * np.log2(10.0))),
    "fast_log2f": _approximate_log2,
    "fast_logf": lambda x: _approximate_log2(x) * np.log(2.0),
    "fast_log10f": lambda x: _approximate_log2(x) * np.log10(2.0),
    "fast_powf": lambda x, y: np.exp2(_single(y * _single(_approximate_log2(x)))),
    "fast_tanhf": lambda x: np.ldexp(np.rint(np.frexp(np.tanh(x))[0] * 2.0**11) / 2.0**11, np.frexp(np.tanh(x))[1]),
}
"""Approximations of the hardware, as far as PTX says how much they err."""
FUNCTIONS: dict[str, Compute] = {
    **{name: getattr(np, name) for name in _SAME_IN_NUMPY},
    **{f"a{name}": getattr(np, f"arc{name}") for name in "cos cosh sin sinh tan tan2 tanh".split()},
    **{f"fast_{name}f": getattr(np, name) for name in "cos exp log log10 log2 sin tan tanh".split()},
    **{name: _torch(getattr(torch.special, name)) for name in "erf erfc erfcx erfinv".split()},
    **{f"cyl_bessel_{name}": _torch(getattr(torch.special, name)) for name in ("i0", "i1")},
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2.0)),
    "erfcinv": lambda x: -_torch(torch.special.ndtri)(x / 2) / np.sqrt(2.0),
    "exp10": lambda x: np.power(10.0, x),
    "fast_dividef": np.divide,
    "fast_exp10f": lambda x: np.power(10.0, x),
    "fast_powf": _power,
    "fdim": lambda x, y: np.maximum(x - y, 0.0),
    "finitef": np.isfinite,
    "float_as_int": lambda x: x.astype(np.float32).view(np.int32),
    "float_as_uint": lambda x: x.astype(np.float32).view(np.uint32),
    "fma": _NEAREST["fma"],
    "int_as_float": lambda x: x.view(np.float32),
    "isfinited": np.isfinite,
    "lgamma": _torch(torch.lgamma),
    "llrint": _integral(np.rint, 64),
    "llround": _integral(_half_away, 64),
    "logb": lambda x: np.floor(np.log2(np.abs(x))),
    "nearbyint": np.rint,
    "norm3d": _root_of_squares,
    "norm4d": _root_of_squares,
    "normcdf": _torch(torch.special.ndtr),
    "normcdfinv": _torch(torch.special.ndtri),
    "pow": _power,
    "rcbrt": lambda x: 1.0 / np.cbrt(x),
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "rhypot": lambda x, y: 1.0 / np.hypot(x, y),
    "rnorm3d": lambda *values: 1.0 / _root_of_squares(*values),
    "rnorm4d": lambda *values: 1.0 / _root_of_squares(*values),
    "round": _half_away,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "rsqrt_rn": lambda x: 1.0 / np.sqrt(x),
    "saturatef": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0.0, 1.0),
    "scalbn": np.ldexp,
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2.0)),
    "tgamma": _gamma,
    "uint_as_float": lambda x: x.view(np.float32),
    **{f"{name}_rn": compute for name, compute in _NEAREST.items()},
    **DIRECTED,
    **{
        f"{real}2{name}_r{d}": _integral(compute, *kind)
        for real in ("float", "double")
        for name, kind in _INTEGERS.items()
        for d, compute in _DIRECTIONS.items()
    },
    **{f"{name}2{real}_rn": np.positive for real in ("float", "double") for name in _INTEGERS},
}
"""By name, on float64 (integers unchanged). The declared types decide powers of integers and roundings."""
