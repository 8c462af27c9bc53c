"""The KernelBench form: `Model`, `get_inputs`, `get_init_inputs`, and `ModelNew` when there is a seed kernel.

Its module-level integers that `get_inputs` or `get_init_inputs` use are its shape parameters, and so are the defaults
of these functions' own parameters.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import torch

from kernelsearch.core.errors import NoKernelError, TaskError
from kernelsearch.core.parsing import parse_python
from kernelsearch.core.plugins import describe_error
from kernelsearch.tasks.forms import (
    Builder,
    TaskSource,
    bind_inputs,
    explain_missing_kernel,
    limit_gradients,
    make_task,
    parameter_names,
    seed_torch,
    suggest_seed,
)
from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.tasks.reach import find_kernels, loaded_names
from kernelsearch.tasks.shrink import LARGE, ODD
from kernelsearch.tasks.task import Case, Params, Task
from kernelsearch.tasks.tried_inputs import count_input_elements

WEIGHTS = 0
"""The seed of all weights. A case's own seed is for its inputs: one launcher serves many cases."""
AROUND = 0.25
"""How far weights lie from the constant that a layer begins with."""


def matches(source: TaskSource) -> bool:
    model = source.get("Model")
    return isinstance(model, type) and issubclass(model, torch.nn.Module)


def adapt(source: TaskSource, need_kernel: bool) -> Task:
    if not callable(source.get("get_inputs")):
        raise TaskError(
            f"{source.path.name} has a Model but no get_inputs; add\n    def get_inputs(): return [torch.randn(...)]"
        )
    new = source.get("ModelNew")
    if need_kernel and not isinstance(new, type):
        lacks = f"{source.path.name} has no kernel: its Model is only the reference"
        raise NoKernelError(f"{lacks}; {suggest_seed(source)}, or add {_model_new(source)}")
    if need_kernel and not find_kernels([new]):
        raise NoKernelError(explain_missing_kernel(source))
    base = list_sizes(source.module, "get_inputs", "get_init_inputs")

    def complete(given: Mapping[str, Any]) -> dict[str, Any]:
        strange = [k for k in given if k not in base]
        if strange:
            known = ", ".join(base) or "none"
            raise TaskError(f"{source.path.name}: a shape has {strange[0]!r}; the file's shape parameters are {known}")
        return {**base, **given}

    probe = _builder(source, None)
    _follow_sizes(source.module, base, lambda params: count_input_elements(probe, params) is not None)
    build = _builder(source, new) if need_kernel else probe
    return make_task(source, "kernelbench", complete, build, (new,) if need_kernel else (), probe)


def list_sizes(module: ModuleType, *functions: str) -> dict[str, Any]:
    """The shape parameters of these functions: the defaults of their own parameters, and the module-level integers that
    they use, directly or through functions of the file.

    Raises TaskError where these have one name and two values.
    """
    queue = [getattr(module, name, None) for name in functions]
    own = [p for f in queue if isinstance(f, FunctionType) for p in inspect.signature(f).parameters.values()]
    numbers: dict[str, Any] = {p.name: p.default for p in own if p.default is not p.empty}
    seen: set[int] = set()
    while queue:
        function = queue.pop(0)
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        for name in loaded_names(function.__code__):
            value = vars(module).get(name)
            if type(value) is int:
                numbers.setdefault(name, value)
            elif isinstance(value, FunctionType) and value.__module__ == module.__name__:
                queue.append(value)
    for p in own:
        values = [numbers.get(p.name), p.default, vars(module).get(p.name)]
        if len({value for value in values if type(value) is int}) > 1:
            raise TaskError(f"{Path(str(module.__file__)).name}: {p.name} has two values: make them one, or rename one")
    return numbers


def call_with(function: Callable[..., Any], params: Mapping[str, Any]) -> Any:
    """The result of get_inputs or get_init_inputs, called with those of the shape's parameters that it takes."""
    taken = inspect.signature(function).parameters
    return function(**{name: value for name, value in params.items() if name in taken})


def make_module(module: ModuleType, kind: type, params: Mapping[str, Any]) -> torch.nn.Module:
    """A Model or ModelNew with the arguments that the file's get_init_inputs gives, if it has one."""
    init = getattr(module, "get_init_inputs", None)
    given = call_with(init, params) if callable(init) else []
    seed_torch(WEIGHTS)
    return kind(**given) if isinstance(given, Mapping) else kind(*given)


_FOLLOWING: WeakKeyDictionary[ModuleType, dict[str, tuple[str | int, ...]]] = WeakKeyDictionary()
"""The tuples of a module in which a number stands for a size of the same value, with the size's name in its place."""


def _follow_sizes(module: ModuleType, base: Mapping[str, Any], takes: Callable[[Params], bool]) -> None:
    """Finds numbers in tuples that must be what a size is: `batch = 4096; shape = (4096,)`, and a product of both.

    They follow it where the reference takes another value of the size with them and not without.
    """
    _FOLLOWING.pop(module, None)
    tuples = _list_tuples(module.__file__ or "")
    for name, value in base.items():
        follow = {n: tuple(name if e == value else e for e in parts) for n, parts in tuples.items() if value in parts}
        smaller = {**base, name: ODD[0]}
        if type(value) is int and value > LARGE and follow and not takes(smaller):
            before = _FOLLOWING.get(module, {})
            _FOLLOWING[module] = {**before, **follow}
            if not takes(smaller):
                _FOLLOWING[module] = before


@contextmanager
def override_globals(module: ModuleType, params: Mapping[str, Any]) -> Iterator[None]:
    """The module's globals with these values, and its tuples of them, put back afterwards."""
    tuples = {**_list_tuples(module.__file__ or ""), **_FOLLOWING.get(module, {})}
    names = [name for name, elements in tuples.items() if vars(module).get(name) == _evaluate(module, elements)]
    globals_ = {n: v for n, v in params.items() if isinstance(vars(module).get(n), (int, torch.SymInt))}
    before = {name: vars(module)[name] for name in (*globals_, *names)}
    vars(module).update(globals_)
    vars(module).update({name: _evaluate(module, tuples[name]) for name in names})
    try:
        yield
    finally:
        vars(module).update(before)


@functools.cache
def _list_tuples(path: str) -> Mapping[str, tuple[str | int, ...]]:
    """The module-level `NAME = (name, number, ...)` of a file."""
    found: dict[str, tuple[str | int, ...]] = {}
    for node in parse_python(Path(path).read_text(encoding="utf-8")).body if path else ():
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Tuple(elts=elements)):
                parts: list[Any] = [e.id if isinstance(e, ast.Name) else getattr(e, "value", None) for e in elements]
                if all(type(part) in (str, int) for part in parts):
                    found[name] = tuple(parts)
    return found


def _evaluate(module: ModuleType, elements: Sequence[str | int]) -> tuple[Any, ...]:
    return tuple(vars(module).get(e) if isinstance(e, str) else e for e in elements)


def _builder(source: TaskSource, new: type | None) -> Builder:
    """Builds cases of Model and, where it is given, of ModelNew."""
    module, model_type = source.module, source.get("Model")

    def build(params: Params, seed: int, device: str) -> Case:
        try:
            with override_globals(module, params), torch.device(device), torch.no_grad():
                with _vary_constants():
                    model = make_module(module, model_type, params).to(device)
                    fast = None if new is None else make_module(module, new, params).to(device)
                seed_torch(seed)
                given = call_with(module.get_inputs, params)
                inputs, names, nest = bind_inputs(source.path, given, device, model.forward)
        except USER_ERRORS as error:
            raise TaskError(
                f"{source.path.name}: building the model or its inputs fails: {describe_error(error, source.path)}"
            ) from error
        if fast is not None:
            _copy_weights(model, fast)
        wide = functools.cache(lambda: copy.deepcopy(model).double())  # at its first call: most builds never need it

        def run_wide(*inputs: Any) -> Any:
            return wide()(*inputs)

        run_wide.model = wide  # type: ignore[attr-defined]
        return Case(
            inputs,
            names,
            _within(module, params, nest(model)),
            _within(module, params, nest(run_wide)),
            None if fast is None else _within(module, params, nest(fast)),
        )

    return build


@contextmanager
def _vary_constants() -> Iterator[None]:
    """Within the context, weights that layers begin with at 1 or 0 lie around these: no kernel may do without them."""

    def fill(tensor: torch.Tensor, value: float) -> torch.Tensor:
        if not tensor.is_floating_point() or not math.isfinite(value):
            return tensor.fill_(value)
        return torch.nn.init.uniform_(tensor, value - AROUND, value + AROUND)

    with (
        mock.patch.object(torch.nn.init, "constant_", lambda tensor, val: fill(tensor, val)),
        mock.patch.object(torch.nn.init, "ones_", lambda tensor: fill(tensor, 1.0)),
        mock.patch.object(torch.nn.init, "zeros_", lambda tensor: fill(tensor, 0.0)),
    ):
        yield


def _within(module: ModuleType, params: Params, function: Callable[..., Any]) -> Callable[..., Any]:
    plain = limit_gradients(module, function)

    @functools.wraps(function, updated=())
    def call(*inputs: Any) -> Any:
        with override_globals(module, params):
            return plain(*inputs)

    return call


def _copy_weights(model: torch.nn.Module, new: torch.nn.Module) -> None:
    """Gives ModelNew's parameters and buffers the reference's values where name and shape are the same."""
    theirs = model.state_dict()
    own = new.state_dict()
    same = {n: theirs[n] for n, t in own.items() if n in theirs and theirs[n].shape == t.shape}
    new.load_state_dict(same, strict=False)


def _model_new(source: TaskSource) -> str:
    names = ", ".join(parameter_names(source.get("Model").forward))
    return (
        "\n    @triton.jit\n"
        "    def my_kernel(...): ...\n"
        "    class ModelNew(nn.Module):\n"
        f"        def forward({names}): ...  # launches my_kernel[grid](...)"
    )
