"""The native form: `reference`, `get_inputs(**shape)`, a Triton kernel and the function that launches it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.tasks.forms import (
    Form,
    Source,
    find_launcher,
    keyed,
    options,
    parameters,
    required,
    shape_list,
)
from kernelsearch.tasks.module import USER_ERRORS, said
from kernelsearch.tasks.shrink import shrunk
from kernelsearch.tasks.task import Case, Params, Task


def matches(source: Source) -> bool:
    return callable(source.get("reference"))


def adapt(source: Source, need_kernel: bool) -> Task:
    return from_functions(source, "native", source.get("reference"), source.get("get_inputs"), need_kernel)


FORM = Form("native", matches, adapt)


def from_functions(source: Source, form: str, reference: Any, get_inputs: Any, need_kernel: bool) -> Task:
    """A Task of a reference, an inputs function and the launcher that the file holds."""
    if not callable(get_inputs):
        raise TaskError(
            f"{source.path.name} has no get_inputs; add\n"
            "    def get_inputs(rows=4096, cols=1024, dtype=torch.float32):\n"
            f"        return [torch.randn(rows, cols, dtype=dtype)]"
            f"  # for {reference.__name__}({', '.join(parameters(reference))})"
        )
    takes = required(reference) or parameters(reference)
    launcher = find_launcher(source, takes) if need_kernel else None
    shapes = [_complete(source, get_inputs, s) for s in shape_list(source, "SHAPES") or [{}]]
    build = _builder(source, reference, get_inputs, launcher)
    tests = shape_list(source, "TEST_SHAPES")
    notes: tuple[str, ...] = ()
    if tests is None:
        numbers = {k: v for k, v in shapes[0].items() if type(v) is int}
        tests, note = shrunk(shapes[0], numbers, lambda params: input_elements(build, params))
        notes = (note,) if note else ()
    return Task(
        name=source.name,
        path=source.path,
        digest=source.digest,
        form=form,
        shapes=keyed("timed", shapes),
        test_shapes=keyed("test", [_complete(source, get_inputs, s) for s in tests]),
        builder=build,
        module=source.module,
        roots=(launcher,) if launcher is not None else (),
        notes=notes,
        **options(source),
    )


def as_inputs(source: Source, made: Any, device: str) -> tuple[Any, ...]:
    """What get_inputs returned, as a tuple with its tensors on device."""
    if isinstance(made, torch.Tensor):
        made = (made,)
    if not isinstance(made, (list, tuple)):
        raise TaskError(f"{source.path.name}: get_inputs must return a list of inputs, not {type(made).__name__}")
    return tuple(x.to(device) if isinstance(x, torch.Tensor) else x for x in made)


def fits(
    source: Source, inputs: tuple[Any, ...], reference: Any, names: tuple[str, ...], needed: tuple[str, ...]
) -> None:
    """Raises TaskError when the inputs are not as many as the reference takes."""
    if not len(needed) <= len(inputs) <= len(names):
        raise TaskError(
            f"{source.path.name}: get_inputs gives {len(inputs)} inputs, "
            f"but {reference.__name__} takes ({', '.join(names)})"
        )


def without_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*inputs: Any) -> Any:
        with torch.no_grad():
            return function(*inputs)

    return call


def _builder(source: Source, reference: Any, get_inputs: Any, launcher: Any) -> Callable[[Params, int, str], Case]:
    names = parameters(reference)

    def build(params: Params, seed: int, device: str) -> Case:
        torch.manual_seed(seed)
        try:
            with torch.device(device):
                inputs = as_inputs(source, get_inputs(**params), device)
        except USER_ERRORS as error:
            given = ", ".join(f"{name}={value!r}" for name, value in params.items())
            raise TaskError(f"{source.path.name}: get_inputs({given}) fails: {said(error, source.path)}") from error
        fits(source, inputs, reference, names, required(reference))
        plain = without_gradients(reference)
        launch = None if launcher is None else without_gradients(launcher)
        return Case(inputs, names[: len(inputs)], plain, plain, launch)

    return build


def _complete(source: Source, get_inputs: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """A shape with get_inputs' own defaults filled in."""
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


def input_elements(build: Callable[[Params, int, str], Case], params: Params) -> int | None:
    """How many elements the inputs of these parameters have; None when the reference does not take them (on meta)."""
    try:
        case = build(params, 0, "meta")
        case.reference(*case.inputs)
    except (TaskError, *USER_ERRORS):
        return None
    return sum(v.numel() for v in case.inputs if isinstance(v, torch.Tensor))
