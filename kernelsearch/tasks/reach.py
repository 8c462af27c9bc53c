"""The Triton kernels that a function's code can reach, found by following the names it uses; nothing is called."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any

from triton.runtime.jit import KernelInterface

LIBRARIES = ("torch", "triton", "numpy")
"""Packages whose insides are not searched: no user's kernel is defined there."""


def find_kernels(roots: Iterable[Any]) -> dict[str, Any]:
    """The kernels that the roots' code can reach, by function name, in the order in which the code names them.

    Follows module-level functions, classes (their methods), closures, `functools.partial` objects, custom operators,
    and attributes of the user's own modules.
    """
    kernels: dict[str, Any] = {}
    seen: set[int] = set()
    queue = list(roots)
    while queue:
        item = queue.pop(0)
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, KernelInterface):
            kernels.setdefault(unwrap_kernel(item).__name__, item)
        else:
            queue.extend(_follow(item))
    return kernels


def unwrap_kernel(kernel: Any) -> Any:
    """The Python function under `@triton.jit` and whatever decorates it."""
    while not isinstance(kernel, FunctionType):
        kernel = kernel.fn
    return kernel


def list_decorators(kernel: Any) -> tuple[Any, ...]:
    """The decorators of a kernel from the outermost to `@triton.jit`'s own object."""
    chain = []
    while not isinstance(kernel, FunctionType):
        chain.append(kernel)
        kernel = kernel.fn
    return tuple(chain)


def _follow(item: Any) -> Iterator[Any]:
    """The objects that an object leads to."""
    item = inspect.unwrap(item) if isinstance(item, FunctionType) else item
    if isinstance(item, (staticmethod, classmethod)):
        yield item.__func__
    elif isinstance(item, FunctionType):
        yield from _follow_function(item)
    elif isinstance(item, type):
        if item.__module__.partition(".")[0] not in LIBRARIES:
            yield from vars(item).values()
    elif inspect.ismethod(item):
        yield item.__func__
        yield item.__self__ if isinstance(item.__self__, type) else type(item.__self__)
    elif inspect.isbuiltin(item) and isinstance(item.__self__, type):
        yield item.__self__  # `SomeFunction.apply` of a torch.autograd.Function
    elif isinstance(item, property):
        yield item.fget
    else:
        for name in ("func", "_init_fn", "kernel"):  # functools.partial, torch's custom operators, wrap_triton
            inner = getattr(item, name, None) if type(item).__module__ != "builtins" else None
            if inner is not None and not isinstance(item, ModuleType):
                yield inner


def _follow_function(function: FunctionType) -> Iterator[Any]:
    scope = {**function.__globals__, **_list_closure_values(function)}
    attributes = _list_loads(function.__code__, _ATTRIBUTES)
    for name in loaded_names(function.__code__):
        value = scope.get(name)
        if isinstance(value, ModuleType):
            if value.__name__.partition(".")[0] not in LIBRARIES:
                yield from (vars(value)[n] for n in attributes if n in vars(value))
        elif value is not None:
            yield value
    yield from (d for d in function.__defaults__ or () if d is not None)


def _list_closure_values(function: FunctionType) -> dict[str, Any]:
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # a cell that is not filled yet
            values[name] = cell.cell_contents
    return values


def loaded_names(code: CodeType) -> tuple[str, ...]:
    """The globals and closure names (no attributes) that a function's code, and functions inside it, read."""
    return _list_loads(code, _GLOBALS)


_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def _list_loads(code: CodeType, operations: frozenset[str]) -> tuple[str, ...]:
    names = [i.argval for i in dis.get_instructions(code) if i.opname in operations]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names.extend(_list_loads(constant, operations))
    return tuple(dict.fromkeys(names))
