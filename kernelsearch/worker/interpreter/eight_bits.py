"""Conversions to and from 8-bit floats as a GPU of compute capability 8.9 or later makes them.

PTX ISA, `cvt.rn.satfinite`: to nearest, ties to even; what is beyond the largest number becomes that number, NaN stays
NaN. The interpreter adds the rounding bit to a mantissa without a carry (1.99 becomes 1) and rounds ties up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter

from kernelsearch.worker.interpreter.sixteen_bits import round_to_bf16, widen

tl = interpreter.tl
_TORCH = {"fp8e5": torch.float8_e5m2, "fp8e4nv": torch.float8_e4m3fn}
_NAN = 0x7F


def install() -> None:
    """Changes this process's interpreter; to be called once."""
    plain = interpreter._convert_float

    def convert(values: np.ndarray, source: Any, target: Any, rounding: Any) -> np.ndarray:
        if not (source.is_fp8() or target.is_fp8()):
            return plain(values, source, target, rounding)
        return _encode(_decode(values, source), target, rounding, plain)

    interpreter._convert_float = convert


def _decode(values: np.ndarray, kind: Any) -> np.ndarray:
    """The numbers that these bits of a kind of float are, as float64."""
    if kind.is_fp8():
        return _values_of(kind.name)[values.view(np.uint8)]
    return (widen(values) if kind == tl.bfloat16 else values).astype(np.float64)


def _encode(numbers: np.ndarray, kind: Any, rounding: Any, plain: Callable[..., np.ndarray]) -> np.ndarray:
    """The bits of these numbers as a kind of float, rounded once."""
    if kind == tl.bfloat16:
        return round_to_bf16(numbers)
    if not kind.is_fp8():  # every 8-bit float is exactly one of any wider kind
        return numbers.astype(interpreter._get_np_dtype(kind)).view(f"u{kind.primitive_bitwidth // 8}")
    finite = _values_of(kind.name)[: _NAN + 1]
    finite = finite[np.isfinite(finite)]
    size = np.minimum(np.abs(numbers), finite[-1])
    below = np.searchsorted(finite, size, side="right") - 1
    above = np.minimum(below + 1, finite.size - 1)
    middle = (finite[below] + finite[above]) / 2
    up = (size > middle) | ((size == middle) & (below % 2 == 1))
    if rounding == interpreter._ir.ROUNDING_MODE.RTZ:
        up = np.zeros_like(up)
    codes = np.where(np.isnan(numbers), _NAN, np.where(up, above, below)).astype(np.uint8)
    return np.where(np.signbit(numbers) & ~np.isnan(numbers), codes | 0x80, codes).astype(np.uint8)


@cache
def _values_of(kind: str) -> np.ndarray:
    """The values of all 256 codes; those of the positive numbers come first, in order."""
    if kind not in _TORCH:
        raise NotImplementedError(f"conversions of {kind} are not known here: they cannot be judged without a GPU")
    with torch._C.DisableTorchFunction():
        codes = torch.arange(256, dtype=torch.uint8)
        return codes.view(_TORCH[kind]).to(torch.float64).numpy()
