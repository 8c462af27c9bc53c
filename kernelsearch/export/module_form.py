"""The KernelBench form: a task's `ModelNew` as a class of the package, and the operator that its forward pass calls."""

from __future__ import annotations

import inspect
import json
from typing import Any

import torch

from kernelsearch.export import cannot_ship, render
from kernelsearch.export.exported_task import ExportedTask
from kernelsearch.export.function_form import (
    collect_template_values,
    write_annotation,
    write_return_type,
    write_set,
    write_tensor_key,
)
from kernelsearch.export.ship import find_read_names
from kernelsearch.export.texts import class_name
from kernelsearch.tasks.kernelbench import call_with, override_globals
from kernelsearch.tasks.module import read_text


def write_module(part: ExportedTask) -> str:
    """The text of a task folder's `__init__.py` for a task whose launcher is a module. Raises ExportError."""
    e = part.examined
    file = e.task.path.name
    judged, dtypes = _judged_modules(part)
    names = [i.name for i in e.inputs]
    if not all(i.is_tensor and write_annotation(i) == "Tensor" for i in e.inputs):
        raise cannot_ship(file, "every input of its module must be a tensor")
    if e.outputs is None or e.task.mutates:
        raise cannot_ship(file, "a module that changes its inputs is not supported")
    return render(
        "task_module.py.jinja",
        **collect_template_values(part),
        dispatch_names="Case, Verified",
        typed=", ".join(f"{n}: Tensor" for n in names),
        returns=write_return_type(e.outputs, e.in_tuple),
        key=", ".join(map(write_tensor_key, names)),
        gradient=" or ".join(f"{n}.requires_grad" for n in names),
        kind=class_name(part.name),
        judged=write_set(judged),
        dtypes=write_set(dtypes),
    )


def _judged_modules(part: ExportedTask) -> tuple[list[str], list[str]]:
    """(The values that the judged modules were made with, as JSON, the dtypes of their weights). Raises ExportError."""
    task = part.examined.task
    file, module = task.path.name, task.module
    params = {key: task.params(key) for key in task.keys}
    varying = {n for n in next(iter(params.values())) if len({p[n] for p in params.values()}) > 1}
    read = sorted(varying & find_read_names(read_text(task.path), ("Model", "ModelNew")))
    if read:
        raise cannot_ship(
            file,
            f"its modules read the shape parameter {read[0]}, which a user's call does not set; "
            "pass it to __init__, or take it from the input",
        )
    judged, dtypes = set(), set()
    for key in task.keys:
        with override_globals(module, params[key]):
            init = call_with(module.get_init_inputs, params[key]) if hasattr(module, "get_init_inputs") else []
            with torch.device("meta"):
                new, model = module.ModelNew(*init), module.Model(*init)
        judged.add(_init_text(module.ModelNew, init))
        _check_weights(new, model, file)
        dtypes |= {str(s.dtype).removeprefix("torch.") for s in (*new.parameters(), *new.buffers())}
    return sorted(judged), sorted(dtypes)


def _init_text(kind: type, init: Any) -> str:
    """The values that a module is made with, in the form that `ModuleTask.describe_init` gives them in the package."""
    bound = inspect.signature(kind.__init__).bind(None, *init)
    bound.apply_defaults()
    return json.dumps([bound.args[1:], bound.kwargs], sort_keys=True)


def _check_weights(new: torch.nn.Module, model: torch.nn.Module, file: str) -> None:
    """Raises ExportError unless the reference can run with all weights of the new module, and none are hidden."""
    own, theirs = _weight_shapes(new), _weight_shapes(model)
    missing = [n for n in theirs if own.get(n) != theirs[n]]
    if missing:
        raise cannot_ship(
            file,
            f"ModelNew has no weight {missing[0]} of Model's shape, so that the reference could not stand in for it",
        )
    for module in new.modules():
        hidden = [n for n, v in vars(module).items() if isinstance(v, torch.Tensor)]
        if hidden:
            raise cannot_ship(file, f"ModelNew keeps the tensor {hidden[0]} outside of parameters and buffers")


def _weight_shapes(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {n: tuple(v.shape) for n, v in (*module.named_parameters(), *module.named_buffers())}
