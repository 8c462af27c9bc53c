"""The native form: `reference`, `get_inputs(**shape)`, a Triton kernel and the function that launches it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.core.parsing import find_nearest
from kernelsearch.core.plugins import describe_error
from kernelsearch.tasks.forms import (
    Builder,
    TaskSource,
    bind_inputs,
    find_launcher,
    limit_gradients,
    make_task,
    parameter_names,
    required_names,
    seed_torch,
)
from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.tasks.task import Case, Params, Task


def matches(source: TaskSource) -> bool:
    return callable(source.get("reference"))


def adapt(source: TaskSource, need_kernel: bool) -> Task:
    return from_functions(source, "native", source.get("reference"), source.get("get_inputs"), need_kernel)


def from_functions(source: TaskSource, form: str, reference: Any, get_inputs: Any, need_kernel: bool) -> Task:
    """A Task made of a reference, an inputs function and the file's launcher. Raises TaskError."""
    if not callable(get_inputs):
        if near := find_nearest("get_inputs", vars(source.module)):
            raise TaskError(f"{source.path.name} has {near} and no get_inputs: rename it")
        raise TaskError(
            f"{source.path.name} has no get_inputs; add\n"
            "    def get_inputs(rows=4096, cols=1024, dtype=torch.float32):\n"
            f"        return [torch.randn(rows, cols, dtype=dtype)]"
            f"  # for {reference.__name__}({', '.join(parameter_names(reference))})"
        )
    takes = required_names(reference) or parameter_names(reference)
    roots = (find_launcher(source, takes),) if need_kernel else ()
    build = _builder(source, reference, get_inputs, *roots)
    return make_task(source, form, lambda given: _complete(source, get_inputs, given), build, roots)


def _builder(source: TaskSource, reference: Any, get_inputs: Any, launcher: Any = None) -> Builder:
    run_plain, run_launcher = (limit_gradients(source.module, f) for f in (reference, launcher))

    def build(params: Params, seed: int, device: str) -> Case:
        seed_torch(seed)
        try:
            try:
                with torch.device(device):
                    given = get_inputs(**params)
            except RuntimeError as error:  # a generator of its own is the CPU's: the inputs are moved below
                if "device type" not in str(error):
                    raise
                given = get_inputs(**params)
            with torch.device(device):
                inputs, names, nest = bind_inputs(source.path, given, device, reference, launcher)
        except USER_ERRORS as error:
            given = ", ".join(f"{name}={value!r}" for name, value in params.items())
            raise TaskError(
                f"{source.path.name}: get_inputs({given}) fails: {describe_error(error, source.path)}"
            ) from error
        plain = nest(run_plain)
        wide = reference.widen(nest, inputs) if hasattr(reference, "widen") else plain  # a kernel is its own reference
        return Case(inputs, names, plain, wide, None if launcher is None else nest(run_launcher))

    return build


def _complete(source: TaskSource, get_inputs: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """A shape with get_inputs' own defaults filled in. Raises TaskError for a name that get_inputs does not take."""
    accepted = inspect.signature(get_inputs).parameters
    anything = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
    strange = [k for k in given if k not in accepted and not anything]
    if strange:
        known = ", ".join(accepted) or "nothing"
        raise TaskError(f"{source.path.name}: a shape has {strange[0]!r}, but get_inputs takes {known}")
    named = {n: p for n, p in accepted.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    missing = [n for n, p in named.items() if p.default is p.empty and n not in given]
    if missing:
        raise TaskError(
            f"{source.path.name}: get_inputs needs {missing[0]!r}; give it a default, or add\n"
            f"    SHAPES = [dict({', '.join(f'{n}=...' for n in named)})]"
        )
    defaults = {n: p.default for n, p in named.items() if p.default is not p.empty}
    return {**defaults, **given}
