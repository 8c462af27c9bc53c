"""A faster Triton interpreter: it skips work that no value depends on, since most of the time goes into types.

Each operation of a kernel makes several `block_type`s and `tensor`s and computes their shapes, names and sizes again,
builds a table to look up a numpy type, compares equal shapes size by size as objects, and checks every integer sum for
an overflow that `device_assert` then does not report, because debugging is off; each call of a helper (`tl.sum` is one)
patches the whole language again, for which it looks through all of it. Here shapes and the table are computed once, a
shape is known by its identity, the check is left out, what two types become in an operation is found once and numpy
spreads the smaller one, and a language is patched once per launch, what is patched found once. No value, no mask
and no error of a kernel changes: tests compare both ways.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from triton.language import core
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.interpreter import interpreter_builder as builder

_SHAPES: dict[tuple[int, ...], tuple[Any, int, str]] = {}
"""By shape, the attributes of a `block_type`: its tuple, number of elements, name."""
_TENSOR_SHAPES: dict[tuple[int, ...], tuple[Any, Any]] = {}
"""By shape, the attributes of a `tensor`: tuple of constexprs, number of elements."""
_MAX_SHAPES = 4096
_plain_block_type = core.block_type.__init__
_plain_tensor = core.tensor.__init__
_plain_np_dtype = interpreter._get_np_dtype
_plain_unwrap = core._unwrap_if_constexpr
_NO_CONSTEXPR = frozenset((int, float, bool, str, type(None), core.dtype, core.block_type, core.tensor))
_plain_eq = core.dtype.__eq__
_plain_patch, _plain_patch_attr = interpreter._patch_lang, interpreter._patch_attr
_plain_broadcast = TritonSemantic.broadcast_impl_value
_NP_DTYPES: dict[str, Any] = {}
_plain_match = TritonSemantic.binary_op_type_checking_impl
_MATCHES: dict[tuple[Any, ...], tuple[Any, Any]] = {}
"""By the types of two operands (or a number itself) and the options of an operation, how each is adapted."""
_PATCHED: dict[int, tuple[Any, ...]] = {}
"""Namespaces, by identity, whose language was patched since the launch began, with the modules of it that they see."""
_PATCHES: dict[Any, list[tuple[Any, str, Any]]] = {}
"""By the modules of the language that the namespaces so far see, what the last of them has patched: the same again."""
_PLAIN_CALL = core.builtin(lambda: None).__code__


def install() -> None:
    """Replaces functions of this process's interpreter, except those that differ in this version of Triton."""
    if getattr(builder.options, "sanitize_overflow", False) and not builder.options.debug:
        builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
    interpreter._get_np_dtype = _np_dtype
    core._unwrap_if_constexpr = _unwrap
    core.dtype.__eq__ = lambda self, other: self is other or _plain_eq(self, other)
    interpreter._patch_lang = _patch_once
    interpreter._patch_attr = _patch_attr
    TritonSemantic.broadcast_impl_value = _broadcast
    TritonSemantic.binary_op_type_checking_impl = _match
    if _is_same(core.block_type, _block_type, (core.float32, [4, 8])):
        core.block_type.__init__ = _block_type
    handle = interpreter.TensorHandle(np.zeros((4, 8), dtype=np.float32), core.float32)
    both = (core.block_type(core.float32, [4, 8]), core.int32)
    if all(_is_same(core.tensor, _tensor, (handle, type_)) for type_ in both):
        core.tensor.__init__ = _tensor


def begin_launch(function: Any) -> Any:
    """Patches the language for a kernel's own namespace, and later for each helper's at its first call.

    Returns the scope that undoes it, or None if this version of Triton has none.
    """
    _PATCHED.clear()
    return interpreter._patch_lang(function)


def _patch_once(function: Any) -> Any:
    names = function.__globals__
    if id(names) in _PATCHED:
        return None
    _PATCHED[id(names)] = tuple(lang for lang in (interpreter.tl, core) if any(v is lang for v in names.values()))
    key = tuple(_PATCHED.values())
    if key not in _PATCHES:
        scope = _plain_patch(function)
        if scope is not None:
            _PATCHES[key] = [(owner, name, getattr(owner, name)) for owner, name, _ in scope._changes]
        return scope
    scope = interpreter._LangPatchScope()
    for change in _PATCHES[key]:
        scope.set_attr(*change)
    return scope


def _patch_attr(owner: Any, name: str, member: Any, *how: Any) -> None:
    plain = member.__wrapped__ if getattr(member, "__code__", None) is _PLAIN_CALL else member
    _plain_patch_attr(owner, name, plain, *how)


def _is_same(kind: Any, initialise: Any, args: tuple[Any, ...]) -> bool:
    """True if an object has the same attributes with this initialiser as with its own."""
    short = kind.__new__(kind)
    initialise(short, *args)
    return {n: str(v) for n, v in vars(short).items()} == {n: str(v) for n, v in vars(kind(*args)).items()}


def _broadcast(self: Any, lhs: Any, rhs: Any) -> Any:
    one, other = lhs.type, rhs.type
    if type(one) is type(other) is core.block_type and one.shape is other.shape:
        return lhs, rhs
    return _plain_broadcast(self, lhs, rhs)


def _match(self: Any, lhs: Any, rhs: Any, *options: Any, **named: Any) -> Any:
    """Two operands with the types that an operation of both needs. What is smaller is not spread: numpy does."""
    one, other = _key(lhs), _key(rhs)
    if one is None or other is None or named:
        return _plain_match(self, lhs, rhs, *options, **named)
    known = _MATCHES.get((one, other, options))
    if known is not None:
        return _adapt(self, lhs, known[0]), _adapt(self, rhs, known[1])
    matched = _plain_match(self, lhs, rhs, *options)
    if len(_MATCHES) < _MAX_SHAPES:
        _MATCHES[one, other, options] = _describe(lhs, matched[0]), _describe(rhs, matched[1])
    return matched


def forget_matches() -> None:
    """Begins anew, for a count of what the interpreter does: an operation makes more tensors the first time."""
    _MATCHES.clear()


def _key(operand: Any) -> Any:
    """What decides how an operand is adapted; None for what has a way of its own."""
    kind = type(operand)
    if kind is int or kind is float or kind is bool:
        return kind, operand
    if kind is not core.tensor or type(operand.handle) is not interpreter.TensorHandle:
        return None
    data = operand.handle.data
    if type(data) is not np.ndarray or (data.dtype == np.bool_ and not operand.type.is_block()):
        return None  # followed pointers; a truth value, which is spread as one
    return operand.type.name


def _describe(operand: Any, matched: Any) -> Any:
    """(What a tensor is cast to, its type then, each None if it stays), or the tensor that stands for a number."""
    if type(operand) is not core.tensor:
        data = matched.handle.data.reshape(-1)[:1].copy()
        return core.tensor(interpreter.TensorHandle(data, matched.handle.dtype), matched.type)
    kind = matched.type.scalar
    return None if operand.type.scalar == kind else kind, None if operand.type == matched.type else matched.type


def _adapt(self: Any, operand: Any, how: Any) -> Any:
    if type(how) is not tuple:
        return how
    kind, whole = how
    if kind is not None:
        operand = self.cast(operand, kind)
    return operand if whole is None else core.tensor(operand.handle, whole)


def _np_dtype(tt_dtype: Any) -> Any:
    if isinstance(tt_dtype, core.block_type):
        tt_dtype = tt_dtype.element_ty
    if tt_dtype.name not in _NP_DTYPES:
        _NP_DTYPES[tt_dtype.name] = _plain_np_dtype(tt_dtype)
    return _NP_DTYPES[tt_dtype.name]


def _unwrap(o: Any) -> Any:
    kind = type(o)
    if kind in _NO_CONSTEXPR:
        return o
    return o.value if kind is core.constexpr else _plain_unwrap(o)


def _sizes(shape: Any) -> tuple[int, ...] | None:
    """The plain integers of a shape; None if it holds anything else."""
    values = shape.values if type(shape) is core.tuple else shape
    if type(values) not in (list, tuple):
        return None
    sizes = tuple([v.value if type(v) is core.constexpr else v for v in values])
    return sizes if sizes and all(type(s) is int for s in sizes) else None


def _block_type(self: Any, element_ty: Any, shape: Any) -> None:
    sizes = _sizes(shape)
    if sizes not in _SHAPES:
        _plain_block_type(self, element_ty, shape)
        if sizes is not None and len(_SHAPES) < _MAX_SHAPES:
            _SHAPES[sizes] = self.shape, self.numel, str(self.shape)
        return
    self.element_ty = element_ty
    self.shape, self.numel, name = _SHAPES[sizes]
    self.name = f"<{name}, {element_ty}>"


def _tensor(self: Any, handle: Any, type: Any) -> None:
    sizes = tuple(type.shape.values) if type.is_block() else ()
    if sizes not in _TENSOR_SHAPES:
        _plain_tensor(self, handle, type)
        if len(_TENSOR_SHAPES) < _MAX_SHAPES:
            _TENSOR_SHAPES[sizes] = self.shape, self.numel
        return
    self.handle = handle
    self.shape, self.numel = _TENSOR_SHAPES[sizes]
    self.type = type
    self.dtype = type.scalar
