"""16-bit floats in Triton's interpreter as a GPU has them: every operation rounds its result to nearest, ties to even.

The interpreter keeps a bfloat16 as its bits in a uint16, converts by cutting bits off, and computes with those bits as
with an integer; numpy adds up float16 in float32. Here an operation on bfloat16 is done in float32 and rounded (PTX
ISA: `add.rn.bf16`, `fma.rn.bf16`; for a target without them the compiler does the same). A sum of 16-bit floats is a
tree of additions, each of which rounds. Products of matrices multiply exactly and add up in their accumulator's type.
Not done: the order in which a GPU adds inside a matrix unit, flushing of subnormal numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

from kernelsearch.worker.interpreter.addresses import wrap_method
from kernelsearch.worker.interpreter.reductions import move_reduced_axis_first, to_reduced_tensor

tl = interpreter.tl
_Builder = type(interpreter.interpreter_builder)
_BF16: dict[str, bool] = {}
"""By the name of a type, whether its values are bfloat16."""


def widen(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits (uint16) as float32, exactly."""
    return np.left_shift(np.asarray(bits, dtype=np.uint32), np.uint32(16)).view(np.float32)


def round_to_bf16(values: np.ndarray, toward_zero: bool = False) -> np.ndarray:
    """Values as bfloat16 bits (uint16), rounded to nearest, ties to even; NaN stays NaN."""
    single = np.ascontiguousarray(values, dtype=np.float32)
    bits = single.view(np.uint32)
    with np.errstate(over="ignore"):
        up = np.uint32(0) if toward_zero else np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        cut = ((bits + up) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(single), np.uint16(0x7FC0), cut).reshape(np.shape(values))


def install() -> None:
    """Changes this process's interpreter; to be called once."""
    for name in ("binary_op", "ternary_op", "unary_op"):
        wrap_method(_Builder, name, _operate)
    wrap_method(_Builder, "cast_impl", _cast)
    wrap_method(_Builder, "create_fp_to_fp", _convert)
    wrap_method(_Builder, "create_dot", _dot)
    wrap_method(interpreter.ReduceOps, "sum", _sum)
    wrap_method(interpreter.ScanOps, "cumsum", _cumsum)
    _Builder.create_fma = lambda self, x, y, z: self.ternary_op(x, y, z, _fma)


def _fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """x * y + z, rounded once: in float64 the product of two float32 is exact."""
    wide = x.astype(np.float64) * y + z
    return wide.astype(z.dtype) if z.dtype.kind == "f" else x * y + z


def _is_bf16(handle: Any) -> bool:
    if type(handle) is not TensorHandle:
        return False
    kind = handle.dtype
    if kind.name not in _BF16:
        _BF16[kind.name] = not isinstance(kind, tl.pointer_type) and kind.scalar == tl.bfloat16
    return _BF16[kind.name]


def _widen(handle: Any) -> Any:
    return TensorHandle(widen(handle.data), tl.float32) if _is_bf16(handle) else handle


def _round(handle: Any) -> TensorHandle:
    return TensorHandle(round_to_bf16(handle.data), tl.bfloat16)


def _operate(plain: Callable, self: Any, *operands: Any) -> TensorHandle:
    *handles, op = operands
    if op is np.where or not any(map(_is_bf16, handles)):
        return plain(self, *handles, op)
    result = plain(self, *map(_widen, handles), op)
    return _round(result) if result.data.dtype.kind == "f" else result


def _cast(plain: Callable, self: Any, src: Any, dst_type: Any) -> TensorHandle:
    if _is_bf16(src) and dst_type.scalar == tl.float32:
        return _widen(src)
    src = _widen(src)
    return _round(src) if dst_type.scalar == tl.bfloat16 else plain(self, src, dst_type)


def _convert(plain: Callable, self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> TensorHandle:
    toward_zero = rounding_mode == interpreter._ir.ROUNDING_MODE.RTZ
    if dst_type.scalar == tl.bfloat16 and src.dtype.scalar in (tl.float32, tl.float64, tl.float16):
        return TensorHandle(round_to_bf16(src.data, toward_zero), tl.bfloat16)
    return plain(self, _widen(src), dst_type, rounding_mode)


def _dot(plain: Callable, self: Any, a: Any, b: Any, d: Any, *rest: Any) -> TensorHandle:
    product = plain(self, _widen(a), _widen(b), _widen(d), *rest)
    return _round(product) if _is_bf16(d) else product


def _add(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The rounded sum of float16 values, or of bfloat16 bits (uint16)."""
    return left + right if left.dtype == np.float16 else round_to_bf16(widen(left) + widen(right))


def _sum(plain: Callable, self: Any, input: Any) -> Any:
    if input.dtype.scalar not in (tl.bfloat16, tl.float16):
        return plain(self, input)
    data = move_reduced_axis_first(self, input)
    while data.shape[0] > 1:
        half = data.shape[0] // 2
        data = np.concatenate([_add(data[:half], data[half : 2 * half]), data[2 * half :]])
    return to_reduced_tensor(self, data[0], input)


def _cumsum(plain: Callable, self: Any, input: Any) -> Any:
    if input.dtype.scalar != tl.bfloat16:
        return plain(self, input)
    sums = np.stack(list(itertools.accumulate(np.moveaxis(input.handle.data, self.axis, 0), _add)))
    return [self.to_tensor(np.moveaxis(sums, 0, self.axis), dtype=input.dtype)]
