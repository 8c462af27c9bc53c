"""Triton's interpreter without the work that no value depends on: most of its time goes into types, not numbers.

Each operation of a kernel makes several `block_type`s and `tensor`s, whose shapes, names and sizes are worked out anew
each time, looks a numpy type up in a table that is built for the purpose, and checks every integer sum for an overflow
that `device_assert` then does not report, because debugging is off; each call of a helper (`tl.sum` is one) patches the
whole language again. Here shapes are worked out once, the table is built once, the check is not begun, and a helper's
language is patched once a launch. No value, no mask and no error of a kernel changes: tests hold both ways against each
other.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from triton.language import core
from triton.runtime import interpreter
from triton.runtime.interpreter import interpreter_builder as builder

_SHAPES: dict[tuple[int, ...], tuple[Any, int, str]] = {}
"""By shape: what `block_type` makes of it (its tuple, number of elements, name)."""
_TENSOR_SHAPES: dict[tuple[int, ...], tuple[Any, Any]] = {}
"""By shape: what `tensor` makes of it (tuple of constexprs, number of elements)."""
_MOST = 4096
_plain_block_type = core.block_type.__init__
_plain_tensor = core.tensor.__init__
_plain_np_dtype = interpreter._get_np_dtype
_plain_unwrap = core._unwrap_if_constexpr
_plain_eq = core.dtype.__eq__
_plain_patch = interpreter._patch_lang
_NP_DTYPES: dict[str, Any] = {}
_PATCHED: set[int] = set()
"""Namespaces, by identity, that see a patched language since the launch began."""


def install() -> None:
    """Once for this process. What a version of Triton keeps otherwise than is known here is left as it is."""
    if getattr(builder.options, "sanitize_overflow", False) and not builder.options.debug:
        builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    interpreter._get_np_dtype = _np_dtype
    core._unwrap_if_constexpr = _unwrapped
    core.dtype.__eq__ = _same_dtype
    interpreter._patch_lang = _patched_once
    if _like(core.block_type, _block_type, (core.float32, [4, 8])):
        core.block_type.__init__ = _block_type
    handle = interpreter.TensorHandle(np.zeros((4, 8), dtype=np.float32), core.float32)
    both = (core.block_type(core.float32, [4, 8]), core.int32)
    if all(_like(core.tensor, _tensor, (handle, type_)) for type_ in both):
        core.tensor.__init__ = _tensor


def uninstall() -> None:
    """For tests that compare."""
    builder.options = interpreter.InterpreterOptions()
    interpreter._get_np_dtype, core._unwrap_if_constexpr = _plain_np_dtype, _plain_unwrap
    core.dtype.__eq__ = _plain_eq
    core.block_type.__init__, core.tensor.__init__ = _plain_block_type, _plain_tensor
    interpreter._patch_lang = _plain_patch


def begin_launch(function: Any) -> Any:
    """Patches the language for a kernel's own namespace, and again for each helper's when it is first called.

    Returns what undoes it, where this version of Triton does so.
    """
    _PATCHED.clear()
    return interpreter._patch_lang(function)


def _patched_once(function: Any) -> Any:
    if id(function.__globals__) in _PATCHED:
        return None
    _PATCHED.add(id(function.__globals__))
    return _plain_patch(function)


def _like(kind: Any, initialise: Any, args: tuple[Any, ...]) -> bool:
    """Whether an object made the short way has the attributes that the long way gives it."""
    made = kind.__new__(kind)
    initialise(made, *args)
    return {n: str(v) for n, v in vars(made).items()} == {n: str(v) for n, v in vars(kind(*args)).items()}


def _np_dtype(tt_dtype: Any) -> Any:
    if isinstance(tt_dtype, core.block_type):
        tt_dtype = tt_dtype.element_ty
    name = tt_dtype.name
    found = _NP_DTYPES.get(name)
    if found is None:
        found = _NP_DTYPES[name] = _plain_np_dtype(tt_dtype)
    return found


def _unwrapped(o: Any) -> Any:
    kind = type(o)
    if kind is int or kind is core.dtype:
        return o
    return o.value if kind is core.constexpr else _plain_unwrap(o)


def _same_dtype(self: Any, other: Any) -> bool:
    return self is other or _plain_eq(self, other)


def _sizes(shape: Any) -> tuple[int, ...] | None:
    """The plain integers of a shape; None where there is anything else."""
    values = shape.values if type(shape) is core.tuple else shape
    if type(values) not in (list, tuple):
        return None
    sizes = tuple([v.value if type(v) is core.constexpr else v for v in values])
    return sizes if sizes and all([type(s) is int for s in sizes]) else None


def _block_type(self: Any, element_ty: Any, shape: Any) -> None:
    sizes = _sizes(shape)
    kept = _SHAPES.get(sizes) if sizes is not None else None
    if kept is None:
        _plain_block_type(self, element_ty, shape)
        if sizes is not None and len(_SHAPES) < _MOST:
            _SHAPES[sizes] = self.shape, self.numel, str(self.shape)
        return
    self.element_ty = element_ty
    self.shape, self.numel, name = kept
    self.name = f"<{name}, {element_ty}>"


def _tensor(self: Any, handle: Any, type: Any) -> None:
    sizes = tuple(type.shape.values) if type.is_block() else ()
    kept = _TENSOR_SHAPES.get(sizes)
    if kept is None:
        _plain_tensor(self, handle, type)
        if len(_TENSOR_SHAPES) < _MOST:
            _TENSOR_SHAPES[sizes] = self.shape, self.numel
        return
    self.handle = handle
    self.shape, self.numel = kept
    self.type = type
    self.dtype = type.scalar
