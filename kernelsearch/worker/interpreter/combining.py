"""`tl.reduce` and `tl.associative_scan` with a kernel's own function, on whole tensors.

Triton's interpreter calls the function once for each element: a Welford variance of a row of 1000 takes minutes. The
language asks for an associative function, so that pairs may be combined in any tree: neighbours are combined all at
once, as a GPU does it. A function that branches on its arguments' values cannot take tensors and goes the slow way.

`tl.argmax` of nothing but NaN, as in a tile's rows that are never stored, is an index as it is on a GPU: from 3.8 on the
interpreter asks numpy's `nanargmax`, which raises there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError

_SCALARS_ONLY = (ValueError, TypeError, IndexError, InterpreterError)
"""What numpy and the interpreter raise when a whole tensor stands where one number is wanted."""


def install() -> None:
    """Replaces the interpreter's two loops over elements in this process; a second call changes nothing."""
    for kind, name, faster in (
        (interpreter.ReduceOps, "generic_reduce", _reduce),
        (interpreter.ScanOps, "generic_scan", _scan),
    ):
        slow = getattr(kind, name)
        if not hasattr(slow, "slow"):
            setattr(kind, name, _either(faster, slow))
    if not hasattr(interpreter.ReduceOps.min_max, "plain"):
        interpreter.ReduceOps.min_max = _indexed(interpreter.ReduceOps.min_max)


def _indexed(plain: Callable[..., Any]) -> Callable[..., Any]:
    def min_max(self: Any, input: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        if idx_reduce_op in (np.nanargmax, np.nanargmin):
            idx_reduce_op = partial(_index, idx_reduce_op)
        return plain(self, input, val_reduce_op, idx_reduce_op)

    min_max.plain = plain  # type: ignore[attr-defined]
    return min_max


def _index(find: Callable[..., Any], data: np.ndarray, axis: int | None, keepdims: bool) -> Any:
    """find's answer, and 0 for a slice that holds NaN alone."""
    nothing = np.isnan(data).all(axis=axis, keepdims=True)
    return find(np.where(nothing, np.zeros_like(data), data), axis=axis, keepdims=keepdims)


def _either(faster: Callable[..., Any], slow: Callable[..., Any]) -> Callable[..., Any]:
    def combined(self: Any, inputs: Any) -> Any:
        try:
            return faster(self, inputs)
        except _SCALARS_ONLY:
            return slow(self, inputs)

    combined.slow = slow  # type: ignore[attr-defined]
    return combined


def _combine(op: Any, left: list[np.ndarray], right: list[np.ndarray], dtypes: list[Any]) -> list[np.ndarray]:
    shape = left[0].shape
    pairs = [[op.to_tensor(data, dtype) for data, dtype in zip(side, dtypes, strict=True)] for side in (left, right)]
    given = op.combine_fn.fn(*pairs[0], *pairs[1])
    given = given if isinstance(given, tuple) else (given,)
    values = [g.handle.data if hasattr(g, "handle") else np.asarray(g) for g in given]
    return [np.broadcast_to(v, shape).astype(old.dtype) for v, old in zip(values, left, strict=True)]


def _reduce(self: Any, inputs: tuple[Any, ...]) -> list[Any]:
    whole = inputs[0].handle.data.shape
    flat = self.axis is None
    dtypes = [i.dtype for i in inputs]
    data = [i.handle.data.reshape(-1) if flat else np.moveaxis(i.handle.data, self.axis, 0) for i in inputs]
    while data[0].shape[0] > 1:
        even = data[0].shape[0] // 2 * 2
        rest = [d[even:] for d in data]
        data = _combine(self, [d[0:even:2] for d in data], [d[1:even:2] for d in data], dtypes)
        data = [np.concatenate(pair) for pair in zip(data, rest, strict=True)]
    found = []
    for one, dtype in zip(data, dtypes, strict=True):
        value = one[0]
        if self.keep_dims:
            value = np.reshape(value, (1,) * len(whole)) if flat else np.expand_dims(value, self.axis)
        found.append(self.to_tensor(value, dtype))
    return found


def _scan(self: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """Hillis and Steele's scan: after the step of size d each element has combined the 2d up to it.

    The first d have nothing before them; they are combined with themselves, because a tensor's length is a power of 2,
    and kept as they were.
    """
    dtypes = [i.dtype for i in inputs]
    data = [np.moveaxis(i.handle.data, self.axis, 0).copy() for i in inputs]
    step = 1
    while step < data[0].shape[0]:
        later = _combine(self, [np.concatenate([d[:step], d[:-step]]) for d in data], data, dtypes)
        data = [np.concatenate([d[:step], new[step:]]) for d, new in zip(data, later, strict=True)]
        step *= 2
    return [self.to_tensor(np.moveaxis(d, 0, self.axis), dtype) for d, dtype in zip(data, dtypes, strict=True)]
