"""Records what a function or module of a file is called with when a script runs, and writes that as `get_inputs`."""

from __future__ import annotations

import inspect
import math
import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.core.plugins import describe_error
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.worker.launcher.intercept import intercept_launches
from kernelsearch.worker.launcher.recorded_sizes import name_sizes
from kernelsearch.worker.launcher.recorded_tensor import write_tensor
from kernelsearch.worker.launcher.standin import pretend_gpu

MOST_BYTES = 2**35
EVALUATED = """

class Model({name}):
    def __init__(self, *given):
        super().__init__(*given)
        self.eval()  # as it was called
"""
_LITERALS = (bool, int, float, str, torch.dtype, type(None))


class _Found(BaseException):
    """Ends the script at the call; no exception that it could catch by accident."""


@dataclass(frozen=True)
class _Call:
    """What a function or a module was called with, and made with; run calls it again."""

    inputs: Mapping[str, Any]
    init: Mapping[str, Any] | None
    run: Any

    @property
    def is_evaluated(self) -> bool:
        """Whether it is a module after `eval()`: without dropout, with the statistics that it has."""
        return self.init is not None and not self.run.training


def record_call(script: str, file: str, name: str) -> str:
    """The text of `get_inputs`, and of `get_init_inputs` for a module, after the first call of NAME in the script.

    Raises TaskError. Without a GPU the script's CUDA tensors are on the CPU.
    """
    made: dict[int, Mapping[str, Any]] = {}
    calls: list[_Call] = []

    def look(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event != "call" or code.co_name not in (name, "__init__", "forward") or not is_file(code.co_filename, file):
            return
        owner = frame.f_locals.get("self")
        if code.co_name == name and code.co_flags & inspect.CO_OPTIMIZED:  # not the body of a class
            function = frame.f_globals.get(name)
            calls.append(_Call(read_arguments(frame, function), None, function))
            raise _Found
        if type(owner).__name__ != name or code.co_name == name:
            return
        given = read_arguments(frame, getattr(type(owner), code.co_name))
        if code.co_name == "__init__":
            made.setdefault(id(owner), given)  # that of a base class comes after
        else:
            calls.append(_Call(given, made.get(id(owner), {}), owner))
            raise _Found

    path = Path(script)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with pretend_gpu(target_by_name("h100"), "cpu"), intercept_launches(lambda launch: None):
            sys.setprofile(look)
            runpy.run_path(script, run_name="__main__")
    except (_Found, SystemExit):
        pass
    except USER_ERRORS as error:
        raise TaskError(f"{path.name} failed before it called {name}: {describe_error(error, path)}") from None
    finally:
        sys.setprofile(None)
    if not calls:
        raise TaskError(f"{path.name} ended without a call of {name} of {Path(file).name}: give a script that calls it")
    if calls[0].is_evaluated and name == "Model" and "super(Model," in Path(file).read_text(encoding="utf-8"):
        raise TaskError("Model was called after eval(), which cannot be recorded: write super() for super(Model, self)")
    with pretend_gpu(target_by_name("h100"), "cpu"), intercept_launches(lambda launch: None):
        return _write(calls[0], name)


def read_arguments(frame: FrameType, function: Any, whole: bool = False) -> dict[str, Any]:
    """What a function that is just entered was given, by name; without defaults at the end, unless it is whole: then
    those that are only given by name are last.
    """
    code, function = frame.f_code, inspect.unwrap(function) if callable(function) else None
    taken = code.co_argcount + code.co_kwonlyargcount
    more = [n for n in code.co_varnames[taken:] if frame.f_locals.get(n)]
    given = {n: frame.f_locals[n] for n in code.co_varnames[:taken] if n != "self"}
    defaults = {}
    if getattr(function, "__code__", None) is code:
        parameters = inspect.signature(function).parameters
        defaults = {n: p.default for n, p in parameters.items() if p.default is not p.empty}
    own = {n for n, value in given.items() if n not in defaults or value is not defaults[n]}
    if loose := [*more, *(n for n in code.co_varnames[code.co_argcount : taken] if n in own and not whole)]:
        raise TaskError(f"{code.co_name} was called with {loose[0]}, which has no place of its own: give it one")
    if whole:
        return given
    last = max((i for i, n in enumerate(given) if n in own), default=-1)
    return dict(list(given.items())[: last + 1])


def is_file(name: str, file: str) -> bool:
    return Path(name).name == Path(file).name and Path(name).resolve() == Path(file).resolve()


def _write(call: _Call, name: str) -> str:
    tensors = {n: v for n, v in call.inputs.items() if isinstance(v, torch.Tensor)}
    for label, value in tensors.items():
        check_tensor(label, value)
    sizes = name_sizes(call.run, call.inputs)
    defaults = {size: tensors[label].shape[axis] for (label, axis), size in sizes.items()}
    made, notes = [], []
    for label, value in call.inputs.items():
        if isinstance(value, torch.Tensor):
            text, note = write_tensor(label, value, sizes, defaults)
            made.append(text)
            notes += [f"    # {note}\n"] if note else []
        else:
            made.append(write_literal(label, value, name))
    body = f"{''.join(notes)}    return [{', '.join(made)}]\n"
    if call.init is None:
        given = ", ".join(f"{size}={value}" for size, value in defaults.items())
        return f"import torch\n\n\ndef get_inputs({given}):\n{body}"
    literals = [write_literal(label, value, name) for label, value in call.init.items()]
    numbers = "".join(f"{size} = {value}\n" for size, value in defaults.items())
    init_text = f"def get_init_inputs():\n    return [{', '.join(literals)}]\n"
    mode = EVALUATED.format(name=name) if call.is_evaluated else ""
    return f"import torch\n\n{numbers}\n\ndef get_inputs():\n{body}\n\n{init_text}{mode}"


def check_tensor(label: str, value: torch.Tensor) -> None:
    """Raises TaskError for a tensor that cannot be recorded."""
    if value.numel() * value.element_size() > MOST_BYTES:
        raise TaskError(f"{label} has {value.numel() * value.element_size() >> 30} GiB: record a call with less")
    if value.layout != torch.strided:
        raise TaskError(f"{label} is a sparse tensor: record a call with dense ones")
    if value.is_complex():
        raise TaskError(f"{label} has complex numbers, and Triton has none")


def write_literal(label: str, value: Any, name: str) -> str:
    items = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(item, _LITERALS) for item in items):
        kind = type(value).__name__
        raise TaskError(
            f"{name} was called with {label}, a {kind}: only tensors, numbers, words and dtypes can be recorded"
        )
    return spell(value)


def spell(value: Any) -> str:
    """A literal's text; `repr` of an infinite number is a name that is not defined."""
    if isinstance(value, (list, tuple)):
        ends = "[]" if isinstance(value, list) else "()"
        return f"{ends[0]}{', '.join(map(spell, value))}{',' * (ends == '()' and len(value) == 1)}{ends[1]}"
    is_open = isinstance(value, float) and not math.isfinite(value)
    return f"float('{value}')" if is_open else repr(value)
