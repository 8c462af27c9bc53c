"""The driver's outline of a task without a kernel: the reference's inputs and outputs, its text, its numbers."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import TensorFact
from kernelsearch.kernel.targets import Target
from kernelsearch.tasks.module import USER_ERRORS, describe_error
from kernelsearch.tasks.outline import Argument, Outline
from kernelsearch.tasks.task import Task
from kernelsearch.worker.launcher.intercept import as_tensor_fact
from kernelsearch.worker.launcher.standin import pretend_gpu
from kernelsearch.worker.launcher.tensors import flatten_result
from kernelsearch.worker.launcher.trace import open_task


def outline_task(path: str, target: Target) -> Outline:
    """The outline of a task file, with or without a kernel. Raises TaskError."""
    task = open_task(path, target, need_kernel=False)
    inputs: dict[str, dict[str, Argument]] = {}
    outputs: dict[str, tuple[TensorFact, ...]] = {}
    for key in task.keys:
        inputs[key], outputs[key] = _shapes(task, key, target)
    function = vars(task.module).get("reference") if task.form != "kernelbench" else vars(task.module)["Model"]
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise TaskError(f"{task.path.name}: the text of its reference cannot be read") from None
    stateful = task.form == "kernelbench" and _stateful(task, target)
    numbers = list(_numbers(source, vars(task.module)))
    named = "".join(f"{name} = {value}\n" for name, value in numbers if name)
    constants = tuple(dict.fromkeys(float(value) for _, value in numbers))
    return Outline(task.name, task.form, inputs, outputs, named + source, constants, stateful, task.precision)


def _shapes(task: Task, key: str, target: Target) -> tuple[dict[str, Argument], tuple[TensorFact, ...]]:
    """Inputs and outputs of one shape; nothing is computed if the reference runs on meta tensors."""
    for device in ("meta", "cpu"):
        with pretend_gpu(target, device):
            try:
                case = task.build(key, 0, device)
                result = case.reference(*case.inputs)
            except TaskError:
                if device == "meta":
                    continue
                raise
            except USER_ERRORS as error:
                if device == "meta":
                    continue
                raise TaskError(
                    f"{task.path.name}: the reference fails at {key}: {describe_error(error, task.path)}"
                ) from error
        arguments = {name: _argument(value) for name, value in zip(case.names, case.inputs, strict=True)}
        return arguments, tuple(map(as_tensor_fact, flatten_result(result, (), (), ())))
    raise AssertionError(key)


def _argument(value: Any) -> Argument:
    if isinstance(value, torch.Tensor):
        return as_tensor_fact(value)
    return value if isinstance(value, (int, float)) else type(value).__name__


def _stateful(task: Task, target: Target) -> bool:
    init = vars(task.module).get("get_init_inputs")
    with pretend_gpu(target, "cpu"):
        arguments = init() if callable(init) else []
        model = vars(task.module)["Model"]
        instance = model(**arguments) if isinstance(arguments, dict) else model(*arguments)
    return bool(instance.state_dict())


def _numbers(source: str, module: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Literals of the reference (with an empty name), and the module-level numbers that it uses."""
    seen = set()
    for node in ast.walk(ast.parse(source)):
        name = node.id if isinstance(node, ast.Name) else ""
        value = node.value if isinstance(node, ast.Constant) else module.get(name)
        if type(value) in (int, float) and 0 <= value < 1e9 and (name, value) not in seen:
            seen.add((name, value))
            yield name, value
