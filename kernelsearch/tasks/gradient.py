"""The gradient of another task: `GRADIENT_OF = "rmsnorm.py"`. Its reference is autograd of that task's reference.

Its inputs are that task's, the results of it that SAVED names, and the gradient of each result that has one; its
results are the gradients by the inputs that GRADIENTS names, or else by all floating ones that the results depend on.
All other options are that task's too where the file gives none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config as functorch_config

from kernelsearch.core.errors import TaskError
from kernelsearch.core.formats import format_bytes
from kernelsearch.core.plugins import describe_error
from kernelsearch.tasks.differentiation import Gradient, flatten
from kernelsearch.tasks.facts import find_smallest_shape, label_shape
from kernelsearch.tasks.forms import Builder, TaskSource, read_options
from kernelsearch.tasks.module import USER_ERRORS, find_forward
from kernelsearch.tasks.native import from_functions
from kernelsearch.tasks.task import Case, Forward, Params, Task

INHERITED = ("SHAPES", "TEST_SHAPES", "PRECISION", "TOLERANCE", "DOMAIN")
BACKWARD = "compiled backward"
"""The baseline of what training runs today: the backward graph of a compiled forward, from what that has saved."""


def matches(source: TaskSource) -> bool:
    return source.get("GRADIENT_OF") is not None


def adapt(source: TaskSource, open_forward: Callable[[Path], Task], need_kernel: bool) -> Task:
    """The task of a file with GRADIENT_OF; open_forward opens the file that it names. Raises TaskError."""
    forward = _open_forward(source, open_forward)
    case = forward.build(find_smallest_shape(forward), 0, "cpu")
    function = inspect.unwrap(case.reference)
    gradient = _find_gradient(source, forward, function, case)
    for name in INHERITED:
        if hasattr(forward.module, name) and not hasattr(source.module, name):
            setattr(source.module, name, getattr(forward.module, name))
    fixed = {**(source.get("DOMAIN") or {}), **dict.fromkeys(gradient.saved, "fixed")}
    source.module.DOMAIN = fixed  # type: ignore[attr-defined]
    reference = gradient.make_reference(function)
    get_inputs = gradient.make_inputs(function, forward.module.get_inputs)
    task = from_functions(source, "gradient", reference, get_inputs, need_kernel)
    known = Forward(forward.path, forward.name, gradient, function)
    baselines = {BACKWARD: _make_backward(gradient, function), **task.baselines}
    task = replace(task, builder=_build_saved(task, known), forward=known, baselines=baselines)
    return replace(task, notes=(*task.notes, *_describe_saved(task, known)))


def _open_forward(source: TaskSource, open_forward: Callable[[Path], Task]) -> Task:
    named, path = source.get("GRADIENT_OF"), find_forward(source.path)
    if path is None or named != path.name:
        raise TaskError(
            f"{source.path.name}: GRADIENT_OF is not the name of a file beside it: write\n"
            '    GRADIENT_OF = "rmsnorm.py"'
        )
    if not path.is_file():
        raise TaskError(f"{source.path.name}: GRADIENT_OF names {named}, and there is no such file beside it")
    if find_forward(path) is not None:
        raise TaskError(f"{source.path.name}: GRADIENT_OF names {named}, a gradient itself: name the task of a forward")
    forward = open_forward(path)
    if forward.form == "kernelbench":
        raise TaskError(
            f"{source.path.name}: {named} has a module: make its reference a function that takes the weights too"
        )
    if forward.mutates:
        raise TaskError(
            f"{source.path.name}: {named} changes {forward.mutates[0]} (MUTATES), so that autograd cannot tell its "
            "gradient: let its reference return a new tensor"
        )
    return forward


def _find_gradient(source: TaskSource, forward: Task, function: Any, case: Case) -> Gradient:
    """What is differentiated by what at the smallest shape, of all or of what the file names. Raises TaskError."""
    file, other, names = source.path.name, forward.path.name, case.names
    if grouped := [name for name in names if "[" in name]:
        raise TaskError(f"{file}: {grouped[0]} of {other} is one of several: give each tensor a parameter of its own")
    try:
        floats = [i for i, x in enumerate(case.inputs) if _is_float(x)]
        count, _, known = _differentiate(function, case.inputs, floats)
    except USER_ERRORS as error:
        raise TaskError(f"{file}: autograd of {other} fails: {describe_error(error, forward.path)}") from error
    if not known:
        raise TaskError(
            f"{file}: {other} has no gradient: no result depends on a floating input in a way that autograd follows "
            "(integers, `detach` and `no_grad` end it)"
        )
    given = read_options(source)
    wanted, inplace = (_as_names(given.get(option, ())) for option in ("GRADIENTS", "MUTATES"))
    for name in (*wanted, *inplace):
        if name not in [names[i] for i in known]:
            has = ", ".join(names[i] for i in known)
            raise TaskError(f"{file}: {other} has no gradient by {name!r}; it has some by {has}")
    saved = dict(given.get("SAVED", {}))
    if wrong := [n for n, at in saved.items() if type(at) is not int or not 0 <= at < count or n in names]:
        raise TaskError(
            f"{file}: SAVED must give names of their own to results of {other} by their numbers, 0 to {count - 1}, "
            f'such as SAVED = {{"y": 0}}; {wrong[0]!r} is wrong'
        )
    by = tuple(i for i in known if names[i] in wanted or not wanted)
    driven = _differentiate(function, case.inputs, by)[1]
    return Gradient(len(names), by, driven, saved, tuple(i for i in by if names[i] in inplace))


def _differentiate(function: Any, inputs: Sequence[Any], by: Sequence[int]) -> tuple[int, tuple[int, ...], list[int]]:
    """(How many results there are, those that have a gradient by these inputs, these that have one by any of them)."""
    own = [x.detach().requires_grad_() if i in by else x for i, x in enumerate(inputs)]
    with torch.enable_grad():
        results = flatten(function(*own))
    driven = tuple(i for i, y in enumerate(results) if y.requires_grad)
    if not driven:
        return len(results), (), []
    outer = [torch.ones_like(results[i]) for i in driven]
    made = torch.autograd.grad([results[i] for i in driven], [own[i] for i in by], outer, allow_unused=True)
    return len(results), driven, [i for i, g in zip(by, made, strict=True) if g is not None]


def _as_names(given: Any) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _build_saved(task: Task, known: Forward) -> Builder:
    """Cases that say how what is saved follows from the other inputs, and what a first kernel may be made of."""
    gradient, function = known.gradient, known.function
    if not gradient.saved:
        return task.builder
    resumed = gradient.make_reference(function, resumed=True)

    def build(params: Params, seed: int, device: str) -> Case:
        case = task.builder(params, seed, device)
        return replace(case, complete=lambda inputs: gradient.complete(function, inputs), start=resumed)

    return build


def _make_backward(gradient: Gradient, function: Any) -> Callable[..., Any]:
    held: list[Any] = [None]

    def backward(*inputs: Any) -> Any:
        key = [(x.data_ptr(), x.shape) if isinstance(x, torch.Tensor) else x for x in inputs]
        with functorch_config.patch(donated_buffer=False):  # a graph that is kept
            if held[0] != key:
                held[:] = [key, *_run_compiled(gradient, function, inputs)]
            outer = inputs[gradient.count + len(gradient.saved) :][: len(gradient.driven)]
            return torch.autograd.grad(held[1], held[2], outer, retain_graph=True)

    return backward


def _run_compiled(gradient: Gradient, function: Any, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """(The results that have a gradient, the inputs that it is by) of a compiled forward pass."""
    own = list(inputs[: gradient.count])
    for i in gradient.by:
        own[i] = own[i].data.requires_grad_()  # not detached: a timer writes other values to its inputs
    with torch.enable_grad():
        results = flatten(torch.compile(function, dynamic=False)(*own))
    return [results[i] for i in gradient.driven], [own[i] for i in gradient.by]


def _describe_saved(task: Task, known: Forward) -> tuple[str, ...]:
    """What is kept in memory between the two at the first timed shape, as a note."""
    key, gradient = task.shapes[0][0], known.gradient
    try:
        case = task.build(key, 0, "meta")
    except (TaskError, *USER_ERRORS):
        return ()
    sizes = [x.nbytes if isinstance(x, torch.Tensor) else 0 for x in case.inputs]
    end = gradient.count + len(gradient.saved)
    names = [case.names[i] for i in range(gradient.count) if sizes[i]]
    kept = f"{', '.join(names)} {format_bytes(sum(sizes[: gradient.count]))}"
    more = f"{', '.join(gradient.saved)} {format_bytes(sum(sizes[gradient.count : end]))} (SAVED)"
    what = f"{kept} and {more}" if gradient.saved else f"{kept}, all else is computed again (SAVED keeps results)"
    return (f"kept from {known.path.name} for its gradient at {label_shape(task, key)}: {what}",)
