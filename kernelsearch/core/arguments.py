"""Checks what a script passes to a public function, or to a class of options, by its signature and its type hints."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import numbers
import os
import types
import typing
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, TypeVar

from kernelsearch.core.errors import KernelsearchError
from kernelsearch.core.parsing import find_nearest

Function = TypeVar("Function", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)
Count = Annotated[int, 1]
"""A whole number of at least one."""
_WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text or a path",
    type(None): "None",
    collections.abc.Callable: "a function",
    collections.abc.Mapping: "a dict",
}
_MANY = {int: "whole numbers", float: "numbers", str: "texts or paths"}


def checked(function: Function) -> Function:
    """The function, with a KernelsearchError that names the argument for an unknown name and for a wrong type.

    A path may be given where a text is expected, and one value where a tuple of any length is.
    """
    signature = inspect.signature(function)
    hints = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())

    @functools.cache
    def resolve() -> dict[str, Any]:
        plain = types.SimpleNamespace(__annotations__=hints)
        return typing.get_type_hints(plain, function.__globals__, include_extras=True)

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        known = [name for name in signature.parameters if name != "self"]
        for name in () if open_ended else named.keys() - set(known):
            near = find_nearest(name, known)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
            raise KernelsearchError(f"no argument {name!r}: {hint}")
        try:
            bound = signature.bind(*args, **named)
        except TypeError as error:
            raise KernelsearchError(f"{function.__name__}: {error}") from None
        for name, value in bound.arguments.items():
            if name in resolve() and signature.parameters[name].kind is not inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = _convert(name, value, resolve()[name])
        return function(*bound.args, **bound.kwargs)

    return typing.cast(Function, call)


def checked_fields(options: Class) -> Class:
    """The dataclass, with its fields checked like arguments."""
    options.__init__ = checked(options.__init__)  # type: ignore[misc]
    return options


def _convert(name: str, value: Any, hint: Any) -> Any:
    """The value as the hint's type. Raises KernelsearchError, which says what is expected."""
    choices = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    for choice in choices:
        try:
            return _as_type(value, choice)
        except (TypeError, ValueError):
            pass
    expected = " or ".join(_describe(choice) for choice in choices)
    near = None
    if isinstance(value, str):
        near = find_nearest(value, [one.value for c in choices if _is_enum(c) for one in c])
    raise KernelsearchError(f"{name} is {expected}, not {value!r}{f': did you mean {near!r}?' if near else ''}")


def _as_type(value: Any, hint: Any) -> Any:
    """The value as a type that is no union. Raises TypeError or ValueError."""
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if hint is Any:
        fits = True
    elif origin is Annotated:
        fits = _as_type(value, args[0]) >= args[1]
    elif hint in (int, float):
        fits = isinstance(value, numbers.Integral if hint is int else numbers.Real) and not isinstance(value, bool)
    elif _is_enum(hint):
        return hint(value)
    elif hint is str:
        return os.fsdecode(value)
    elif origin is tuple:
        one = isinstance(value, str | os.PathLike) or not isinstance(value, collections.abc.Iterable)
        values = [value] if one and args[-1] is ... else list(value)
        kinds = [args[0]] * len(values) if args[-1] is ... else args
        return tuple(_as_type(v, kind) for v, kind in zip(values, kinds, strict=True))
    else:
        fits = isinstance(value, origin)
    if not fits:
        raise TypeError(value)
    return value


def _is_enum(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Enum)


def _describe(hint: Any) -> str:
    """What is expected, in words."""
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if _is_enum(hint):
        return f"one of {', '.join(one.value for one in hint)}"
    if origin is Annotated:
        return f"{_describe(args[0])} of at least {args[1]}"
    if origin is tuple:
        count = "a tuple of" if args[-1] is ... else str(len(args))
        return f"{count} {_MANY.get(args[0], args[0])}"
    return _WORDS.get(origin, getattr(hint, "__name__", str(hint)))
