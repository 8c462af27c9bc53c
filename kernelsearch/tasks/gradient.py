"""The gradient of another task: `GRADIENT_OF = "rmsnorm.py"`. Its reference is autograd of that task's reference.

Its inputs are that task's, the results of it that SAVED names, and the gradient of each result that has one; its
results are the gradients by the inputs that GRADIENTS names, or else by all floating ones that the results depend on.
All other options are that task's too where the file gives none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.core.formats import format_bytes
from kernelsearch.core.plugins import describe_error
from kernelsearch.tasks.differentiation import BACKWARD, Gradient
from kernelsearch.tasks.facts import find_smallest_shape, label_shape
from kernelsearch.tasks.forms import TaskSource, read_options
from kernelsearch.tasks.module import USER_ERRORS, find_forward
from kernelsearch.tasks.native import from_functions
from kernelsearch.tasks.task import Case, Forward, Params, Task

INHERITED = ("SHAPES", "TEST_SHAPES", "PRECISION", "TOLERANCE", "DOMAIN")


def adapt(source: TaskSource, open_forward: Callable[[Path], Task], need_kernel: bool) -> Task:
    """The task of a file with GRADIENT_OF; open_forward opens the file that it names. Raises TaskError."""
    forward, module = _open_forward(source, open_forward), source.module
    case = forward.build(find_smallest_shape(forward), 0, "cpu")
    function = inspect.unwrap(case.reference)
    gradient = _find_gradient(source, forward, function, case)
    for name in INHERITED:
        if hasattr(forward.module, name) and not hasattr(module, name):
            setattr(module, name, getattr(forward.module, name))
    vars(module)["DOMAIN"] = {**(source.get("DOMAIN") or {}), **dict.fromkeys(gradient.saved, "fixed")}
    get_inputs = gradient.make_inputs(function, forward.module.get_inputs)
    reference, resumed = (gradient.make_reference(function, resumed) for resumed in (False, True))
    task = from_functions(source, "gradient", reference, get_inputs, need_kernel)

    def build(params: Params, seed: int, device: str) -> Case:
        case = task.builder(params, seed, device)
        return replace(case, complete=partial(gradient.complete, function), start=resumed)

    peers = {f"{name} backward": gradient.make_backward(f, False) for name, f in forward.baselines.items()}
    known, baselines = Forward(forward.path, gradient, function), {**peers, **task.baselines}
    baselines.setdefault(BACKWARD, gradient.make_backward(function))
    notes = (*task.notes, *_describe_saved(task, gradient))
    return replace(task, builder=build, forward=known, baselines=baselines, notes=notes)


def _open_forward(source: TaskSource, open_forward: Callable[[Path], Task]) -> Task:
    named, path = source.get("GRADIENT_OF"), find_forward(source.path)
    head = f"{source.path.name}: GRADIENT_OF names {named}"
    if path is None or named != path.name or not path.is_file():
        raise TaskError(f"{head}, and there is no such file beside it (write its name alone, in quotes)")
    if find_forward(path) is not None:
        raise TaskError(f"{head}, a gradient itself: name the task of a forward")
    forward = open_forward(path)
    if forward.form == "kernelbench":
        raise TaskError(f"{head}, which has a module: make its reference a function that takes the weights too")
    if forward.mutates:
        raise TaskError(f"{head}, which changes {forward.mutates[0]} (MUTATES): let its reference return a new tensor")
    return forward


def _find_gradient(source: TaskSource, forward: Task, function: Any, case: Case) -> Gradient:
    """What is differentiated by what at the smallest shape, of all or of what the file names. Raises TaskError."""
    head, names, given = f"{source.path.name}: {forward.path.name}", case.names, read_options(source)
    if grouped := [name for name in names if "[" in name]:
        raise TaskError(f"{head} takes {grouped[0]} as one of several: give each tensor a parameter of its own")
    try:
        floats = [i for i, x in enumerate(case.inputs) if isinstance(x, torch.Tensor) and x.is_floating_point()]
        count, _, known = _differentiate(function, case.inputs, floats)
        wanted, inplace = (given.get(option, ()) for option in ("GRADIENTS", "MUTATES"))
        by = tuple(i for i in known if names[i] in wanted or not wanted)
        driven = _differentiate(function, case.inputs, by)[1]
    except USER_ERRORS as error:
        raise TaskError(f"{head} cannot be differentiated: {describe_error(error, forward.path)}") from error
    if not known:
        what = "no result depends on a floating input in a way that autograd follows"
        raise TaskError(f"{head} has no gradient: {what} (integers, `detach` and `no_grad` end it)")
    has, saved = [names[i] for i in known], dict(given.get("SAVED", {}))
    if missing := [name for name in (*wanted, *inplace) if name not in has]:
        raise TaskError(f"{head} has no gradient by {missing[0]!r}; it has some by {', '.join(has)}")
    if wrong := [n for n, at in saved.items() if type(at) is not int or not 0 <= at < count or n in names]:
        known_by = f'numbers, 0 to {count - 1}, under names of their own, such as SAVED = {{"y": 0}}'
        raise TaskError(f"{head} has results that SAVED may name by their {known_by}; {wrong[0]!r} is wrong")
    return Gradient(len(names), by, driven, saved, tuple(i for i in by if names[i] in inplace))


def _differentiate(function: Any, inputs: Sequence[Any], by: Sequence[int]) -> tuple[int, tuple[int, ...], list[int]]:
    """(How many results there are, those that have a gradient by these inputs, these that have one by any of them)."""
    own = [inputs[i].detach().requires_grad_() for i in by]
    with torch.enable_grad():
        results = Gradient(len(inputs), tuple(by)).run(function, inputs, own, {})
        driven = tuple(i for i, y in enumerate(results) if y.requires_grad)
        made = torch.autograd.grad([results[i].sum() for i in driven], own, allow_unused=True) if driven else ()
    return len(results), driven, [i for i, g in zip(by, made) if g is not None]


def _describe_saved(task: Task, gradient: Gradient) -> Iterator[str]:
    """What is kept in memory between forward and gradient at the first timed shape, as a note."""
    with suppress(TaskError, *USER_ERRORS):
        case = task.build(key := task.shapes[0][0], 0, "meta")
        kept = zip(case.names[: gradient.count + len(gradient.saved)], case.inputs)
        sizes = [f"{name} {format_bytes(x.nbytes)}" for name, x in kept if isinstance(x, torch.Tensor)]
        rest = f"{', '.join(gradient.saved) or 'nothing'} by SAVED, all else is computed again"
        yield f"kept of the forward for its gradient at {label_shape(task, key)}: {', '.join(sizes)}; {rest}"
