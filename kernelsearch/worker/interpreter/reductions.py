"""`tl.reduce` and `tl.associative_scan` with a kernel's own function, on whole tensors.

Triton's interpreter calls the function once for each element: a Welford variance of a row of 1000 takes minutes. The
language requires an associative function, so pairs may be combined in any tree: neighbours are combined all at once, as
on a GPU. A function that branches on its arguments' values cannot take tensors and goes the slow way.

`tl.argmax` of NaN alone, as in the rows of a tile that are never stored, is an index as on a GPU: from 3.8 on the
interpreter calls numpy's `nanargmax`, which raises there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError

from kernelsearch.worker.interpreter.addresses import wrap_method

_SCALARS_ONLY = (ValueError, TypeError, IndexError, InterpreterError)
"""Errors of numpy and the interpreter for a whole tensor in the place of one number."""


def install() -> None:
    """Replaces the interpreter's two loops over elements in this process; to be called once."""
    wrap_method(interpreter.ReduceOps, "generic_reduce", partial(_try_first, _reduce))
    wrap_method(interpreter.ScanOps, "generic_scan", partial(_try_first, _scan))
    wrap_method(interpreter.ReduceOps, "min_max", _min_max)


def _min_max(plain: Callable[..., Any], self: Any, input: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
    if idx_reduce_op in (np.nanargmax, np.nanargmin):
        idx_reduce_op = partial(_find_index, idx_reduce_op)
    return plain(self, input, val_reduce_op, idx_reduce_op)


def _find_index(find: Callable[..., Any], data: np.ndarray, axis: int | None, keepdims: bool) -> Any:
    """The answer of find, and 0 for a slice that holds NaN alone."""
    all_nan = np.isnan(data).all(axis=axis, keepdims=True)
    return find(np.where(all_nan, np.zeros_like(data), data), axis=axis, keepdims=keepdims)


def _try_first(fast: Callable[..., Any], slow: Callable[..., Any], self: Any, inputs: Any) -> Any:
    try:
        return fast(self, inputs)
    except _SCALARS_ONLY:
        return slow(self, inputs)


def move_reduced_axis_first(op: Any, tensor: Any) -> np.ndarray:
    """A tensor's data with the axis that a reduction removes in front; flat if it removes all."""
    data = tensor.handle.data
    return data.reshape(-1) if op.axis is None else np.moveaxis(data, op.axis, 0)


def to_reduced_tensor(op: Any, value: Any, tensor: Any) -> Any:
    """The tensor of a reduction's result, with the removed axes of length 1 if it keeps them."""
    if op.keep_dims:
        all_axes = (1,) * tensor.handle.data.ndim
        value = np.reshape(value, all_axes) if op.axis is None else np.expand_dims(value, op.axis)
    return op.to_tensor(value, tensor.dtype)


def _combine(op: Any, left: list[np.ndarray], right: list[np.ndarray], dtypes: list[Any]) -> list[np.ndarray]:
    shape = left[0].shape
    pairs = [[op.to_tensor(data, dtype) for data, dtype in zip(side, dtypes, strict=True)] for side in (left, right)]
    results = op.combine_fn.fn(*pairs[0], *pairs[1])
    results = results if isinstance(results, tuple) else (results,)
    values = [r.handle.data if hasattr(r, "handle") else np.asarray(r) for r in results]
    return [np.broadcast_to(v, shape).astype(old.dtype) for v, old in zip(values, left, strict=True)]


def _reduce(self: Any, inputs: tuple[Any, ...]) -> list[Any]:
    dtypes = [i.dtype for i in inputs]
    data = [move_reduced_axis_first(self, i) for i in inputs]
    while data[0].shape[0] > 1:
        even = data[0].shape[0] // 2 * 2
        rest = [d[even:] for d in data]
        data = _combine(self, [d[0:even:2] for d in data], [d[1:even:2] for d in data], dtypes)
        data = [np.concatenate(pair) for pair in zip(data, rest, strict=True)]
    return [to_reduced_tensor(self, d[0], i) for d, i in zip(data, inputs, strict=True)]


def _scan(self: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """Hillis and Steele's scan: after the step of size d each element has combined the last 2d up to itself.

    The first d elements have nothing before them. They are combined with themselves, because a tensor's length is a
    power of 2, and the result is dropped.
    """
    dtypes = [i.dtype for i in inputs]
    data = [np.moveaxis(i.handle.data, self.axis, 0).copy() for i in inputs]
    step = 1
    while step < data[0].shape[0]:
        later = _combine(self, [np.concatenate([d[:step], d[:-step]]) for d in data], data, dtypes)
        data = [np.concatenate([d[:step], new[step:]]) for d, new in zip(data, later, strict=True)]
        step *= 2
    return [self.to_tensor(np.moveaxis(d, 0, self.axis), dtype) for d, dtype in zip(data, dtypes, strict=True)]
