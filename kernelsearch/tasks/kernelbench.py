"""The KernelBench form: `Model`, `get_inputs`, `get_init_inputs`, and `ModelNew` when there is a seed kernel.

Its module-level integers that `get_inputs` or `get_init_inputs` use are its shape parameters.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import torch

from kernelsearch.core.errors import NoKernelError, TaskError
from kernelsearch.tasks.forms import A_MODEL, Form, Source, keyed, no_kernel, options, parameters, required, shape_list
from kernelsearch.tasks.module import USER_ERRORS, said
from kernelsearch.tasks.native import as_inputs, fits, input_elements
from kernelsearch.tasks.reach import kernels_reached, loaded_names
from kernelsearch.tasks.shrink import shrunk
from kernelsearch.tasks.task import Case, Params, Task


def matches(source: Source) -> bool:
    model = source.get("Model")
    return isinstance(model, type) and issubclass(model, torch.nn.Module)


def adapt(source: Source, need_kernel: bool) -> Task:
    if not callable(source.get("get_inputs")):
        raise TaskError(
            f"{source.path.name} has a Model but no get_inputs; add\n    def get_inputs(): return [torch.randn(...)]"
        )
    new = source.get("ModelNew")
    if need_kernel and not isinstance(new, type):
        lacks = f"{source.path.name} has no kernel: its Model is only the reference"
        raise NoKernelError(f"{lacks}; let a model write the first one (`{A_MODEL}`), or add {_model_new(source)}")
    if need_kernel and not kernels_reached([new]):
        raise NoKernelError(no_kernel(source))
    base = shape_parameters(source.module)
    shapes = [{**base, **_known(source, base, s)} for s in shape_list(source, "SHAPES") or [{}]]
    build = _builder(source, new if need_kernel else None)
    tests = shape_list(source, "TEST_SHAPES")
    notes: tuple[str, ...] = ()
    if tests is None:
        numbers = {k: v for k, v in shapes[0].items() if type(v) is int}
        reference_only = _builder(source, None)
        tests, note = shrunk(shapes[0], numbers, lambda params: input_elements(reference_only, params))
        notes = (note,) if note else ()
    return Task(
        name=source.name,
        path=source.path,
        digest=source.digest,
        form="kernelbench",
        shapes=keyed("timed", shapes),
        test_shapes=keyed("test", [{**base, **_known(source, base, s)} for s in tests]),
        builder=build,
        module=source.module,
        roots=(new,) if need_kernel else (),
        notes=notes,
        **options(source),
    )


FORM = Form("kernelbench", matches, adapt)


def shape_parameters(module: ModuleType) -> dict[str, int]:
    """Module-level integers that get_inputs or get_init_inputs use, directly or through the file's functions."""
    found: dict[str, int] = {}
    queue = [getattr(module, n, None) for n in ("get_inputs", "get_init_inputs")]
    seen: set[int] = set()
    while queue:
        function = queue.pop(0)
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        for name in loaded_names(function.__code__):
            value = vars(module).get(name)
            if type(value) is int:
                found[name] = value
            elif isinstance(value, FunctionType) and value.__module__ == module.__name__:
                queue.append(value)
    return found


@contextmanager
def overridden(module: ModuleType, params: Mapping[str, Any]) -> Iterator[None]:
    """The module's globals with these values, put back afterwards."""
    before = {name: vars(module)[name] for name in params}
    vars(module).update(params)
    try:
        yield
    finally:
        vars(module).update(before)


def _builder(source: Source, new: type | None) -> Callable[[Params, int, str], Case]:
    module = source.module
    names = parameters(source.get("Model").forward)[1:]

    def made(kind: type, seed: int, device: str) -> torch.nn.Module:
        init = source.get("get_init_inputs")
        arguments = init() if callable(init) else []
        torch.manual_seed(seed)
        built = kind(**arguments) if isinstance(arguments, Mapping) else kind(*arguments)
        return built.to(device)

    def build(params: Params, seed: int, device: str) -> Case:
        try:
            with overridden(module, params), torch.device(device), torch.no_grad():
                model = made(source.get("Model"), seed, device)
                fast = None if new is None else made(new, seed, device)
                torch.manual_seed(seed)
                inputs = as_inputs(source, source.get("get_inputs")(), device)
        except USER_ERRORS as error:
            raise TaskError(
                f"{source.path.name}: building the model or its inputs fails: {said(error, source.path)}"
            ) from error
        fits(source, inputs, source.get("Model").forward, names, required(source.get("Model").forward)[1:])
        if fast is not None:
            _copy_weights(model, fast)
        wide = _Lazy64(model)
        launch = None if fast is None else _within(module, params, fast)
        return Case(inputs, names[: len(inputs)], _within(module, params, model), _within(module, params, wide), launch)

    return build


class _Lazy64:
    """The model in float64, made at its first call: most builds never ask for it."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.wide: torch.nn.Module | None = None

    def __call__(self, *inputs: Any) -> Any:
        if self.wide is None:
            self.wide = copy.deepcopy(self.model).double()
        return self.wide(*inputs)


def _within(module: ModuleType, params: Params, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*inputs: Any) -> Any:
        with overridden(module, params), torch.no_grad():
            return function(*inputs)

    return call


def _copy_weights(model: torch.nn.Module, new: torch.nn.Module) -> None:
    """ModelNew's parameters and buffers take the reference's values where name and shape are the same."""
    theirs = model.state_dict()
    own = new.state_dict()
    same = {n: theirs[n] for n, t in own.items() if n in theirs and theirs[n].shape == t.shape}
    new.load_state_dict(same, strict=False)


def _known(source: Source, base: Mapping[str, int], given: Mapping[str, Any]) -> Mapping[str, Any]:
    strange = [k for k in given if k not in base]
    if strange:
        known = ", ".join(base) or "none"
        raise TaskError(f"{source.path.name}: a shape has {strange[0]!r}; the file's shape parameters are {known}")
    return given


def _model_new(source: Source) -> str:
    names = ", ".join(parameters(source.get("Model").forward))
    return (
        "\n    @triton.jit\n"
        "    def my_kernel(...): ...\n"
        "    class ModelNew(nn.Module):\n"
        f"        def forward({names}): ...  # launches my_kernel[grid](...)"
    )
