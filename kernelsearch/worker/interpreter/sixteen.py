"""16-bit floats in Triton's interpreter as a GPU has them: every operation rounds its result to nearest, ties to even.

The interpreter keeps a bfloat16 as its bits in a uint16, converts by cutting bits off, and does arithmetic on those
bits as if they were an integer; numpy adds up float16 in float32. Here an operation on bfloat16 is done in float32 and
rounded (PTX ISA: `add.rn.bf16`, `fma.rn.bf16`; where a target has no such instruction the compiler does just this), and a
sum of 16-bit floats is a tree of additions, each of which rounds. Products of matrices multiply exactly and add up in
their accumulator's type. Not done: the order in which a GPU adds inside a matrix unit, flushing of subnormal numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

tl = interpreter.tl
_Builder = type(interpreter.interpreter_builder)


def widened(bits: np.ndarray) -> np.ndarray:
    """bfloat16 bits (uint16) as float32, exactly."""
    return np.left_shift(np.asarray(bits, dtype=np.uint32), np.uint32(16)).view(np.float32)


def rounded(values: np.ndarray, toward_zero: bool = False) -> np.ndarray:
    """Values as bfloat16 bits (uint16): to nearest, ties to even; NaN stays NaN."""
    single = np.ascontiguousarray(values, dtype=np.float32)
    bits = single.view(np.uint32)
    with np.errstate(over="ignore"):
        up = np.uint32(0) if toward_zero else np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        cut = ((bits + up) >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(single), np.uint16(0x7FC0), cut).reshape(np.shape(values))


def install() -> None:
    """Teaches this process's interpreter; a second call changes nothing."""
    if hasattr(_Builder, "rounds_sixteen"):
        return
    _Builder.rounds_sixteen = True
    for name in ("binary_op", "ternary_op", "unary_op"):
        setattr(_Builder, name, _rounding(getattr(_Builder, name)))
    _Builder.cast_impl = _casting(_Builder.cast_impl)
    _Builder.create_fp_to_fp = _converting(_Builder.create_fp_to_fp)
    _Builder.create_dot = _multiplying(_Builder.create_dot)
    _Builder.create_fma = lambda self, x, y, z: self.ternary_op(x, y, z, _fma)
    interpreter.ReduceOps.sum = _summing(interpreter.ReduceOps.sum)
    interpreter.ScanOps.cumsum = _accumulating(interpreter.ScanOps.cumsum)


def _fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Rounded once: in float64 the product of two float32 is exact."""
    wide = x.astype(np.float64) * y + z
    return wide.astype(z.dtype) if z.dtype.kind == "f" else x * y + z


def _is_bf16(handle: Any) -> bool:
    return (
        isinstance(handle, TensorHandle)
        and not isinstance(handle.dtype, tl.pointer_type)
        and handle.dtype.scalar == tl.bfloat16
    )


def _widened(handle: Any) -> Any:
    return TensorHandle(widened(handle.data), tl.float32) if _is_bf16(handle) else handle


def _rounding(plain: Callable) -> Callable:
    def apply(self: Any, *operands: Any) -> TensorHandle:
        *handles, op = operands
        if op is np.where or not any(map(_is_bf16, handles)):
            return plain(self, *handles, op)
        found = plain(self, *map(_widened, handles), op)
        if found.data.dtype.kind != "f":
            return found
        return TensorHandle(rounded(found.data), tl.bfloat16)

    return apply


def _casting(plain: Callable) -> Callable:
    def cast(self: Any, src: Any, dst_type: Any) -> TensorHandle:
        if _is_bf16(src):
            src = _widened(src)
            if dst_type.scalar == tl.float32:
                return src
        if dst_type.scalar == tl.bfloat16:
            return TensorHandle(rounded(src.data.astype(np.float32)), tl.bfloat16)
        return plain(self, src, dst_type)

    return cast


def _converting(plain: Callable) -> Callable:
    def convert(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> TensorHandle:
        toward_zero = rounding_mode == interpreter._ir.ROUNDING_MODE.RTZ
        if dst_type.scalar == tl.bfloat16 and src.dtype.scalar in (tl.float32, tl.float64, tl.float16):
            return TensorHandle(rounded(src.data.astype(np.float32), toward_zero), tl.bfloat16)
        return plain(self, _widened(src) if _is_bf16(src) else src, dst_type, rounding_mode)

    return convert


def _multiplying(plain: Callable) -> Callable:
    def dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> TensorHandle:
        if not any(map(_is_bf16, (a, b, d))):
            return plain(self, a, b, d, *rest)
        found = plain(self, _widened(a), _widened(b), _widened(d), *rest)
        return TensorHandle(rounded(found.data), tl.bfloat16) if _is_bf16(d) else found

    return dot


def _added(left: np.ndarray, right: np.ndarray, bf16: bool) -> np.ndarray:
    return rounded(widened(left) + widened(right)) if bf16 else left + right


def _summing(plain: Callable) -> Callable:
    def total(self: Any, input: Any) -> Any:
        scalar = input.dtype.scalar
        if scalar not in (tl.bfloat16, tl.float16):
            return plain(self, input)
        data = input.handle.data
        shape = data.shape
        data = data.reshape(-1) if self.axis is None else np.moveaxis(data, self.axis, 0)
        while data.shape[0] > 1:
            half = data.shape[0] // 2
            data = np.concatenate([_added(data[:half], data[half : 2 * half], scalar == tl.bfloat16), data[2 * half :]])
        value = data[0]
        if self.keep_dims:
            value = value.reshape((1,) * len(shape)) if self.axis is None else np.expand_dims(value, self.axis)
        return self.to_tensor(value, input.dtype)

    return total


def _accumulating(plain: Callable) -> Callable:
    def scan(self: Any, input: Any) -> Any:
        if input.dtype.scalar != tl.bfloat16:
            return plain(self, input)
        data = np.moveaxis(input.handle.data, self.axis, 0)
        kept = [data[0]]
        for row in data[1:]:
            kept.append(_added(kept[-1], row, True))
        return [self.to_tensor(np.moveaxis(np.stack(kept), 0, self.axis), dtype=input.dtype)]

    return scan
