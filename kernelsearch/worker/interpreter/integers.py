"""Conversions of floats to integers as a GPU makes them; numpy's depend on the machine where a value is out of range.

PTX ISA, `cvt.rzi`: what is beyond the range becomes its end, and NaN becomes 0, or the top bit alone where either type
has 64 bits. There are no conversions to 8 bits: the compiler converts to 16 and keeps the lower ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from kernelsearch.worker.interpreter.addresses import wrap_method


def install() -> None:
    """Changes this process's interpreter; to be called once, before bfloat16 is."""
    wrap_method(type(interpreter.interpreter_builder), "cast_impl", _cast)


def _cast(plain: Callable, self: Any, src: Any, dst_type: Any) -> TensorHandle:
    target = np.dtype(interpreter._get_np_dtype(dst_type))
    if src.data.dtype.kind != "f" or target.kind not in "iu":
        return plain(self, src, dst_type)
    return TensorHandle(saturate(src.data, target), dst_type.scalar)


def saturate(values: np.ndarray, target: np.dtype) -> np.ndarray:
    """The floats as integers of the target's type."""
    range_ = np.iinfo(f"{target.kind}{max(2, target.itemsize)}")
    whole = np.trunc(values.astype(np.float64))
    low, high, nan = whole < float(range_.min), whole >= float(range_.max) + 1, np.isnan(whole)
    integers = np.where(low | high | nan, 0, whole).astype(range_.dtype)
    integers = np.where(low, range_.dtype.type(range_.min), np.where(high, range_.dtype.type(range_.max), integers))
    if max(values.itemsize, target.itemsize) == 8:
        integers = np.where(nan, range_.dtype.type(range_.min or 1 << range_.bits - 1), integers)
    return integers.astype(target)
