"""A task's reference as a function of tensors alone, as TorchInductor takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernelsearch.tasks.forms import bind_inputs
from kernelsearch.tasks.kernelbench import call_with, make_module, override_globals
from kernelsearch.tasks.task import Task
from kernelsearch.worker.launcher.standin import replace_attributes
from kernelsearch.worker.launcher.symbols import pick_symbols

Flat = tuple[Callable[..., Any], list[Any], list[str], tuple[str, ...], dict[str, Any]]
DEVICE = "cpu:0"
"""Inductor asks for a GPU's index; plain `cpu` tensors have none."""


def flatten(task: Task, params: Mapping[str, Any]) -> Flat:
    """(The reference as a function of tensors only, these, their names, its parameters, those that are symbols)."""
    if task.form == "kernelbench":
        return _flatten_model(task, params)
    case = task.builder(params, 0, DEVICE)
    start = case.start or case.reference
    return (*_take_tensors(start, case.names, case.inputs), case.names, pick_symbols(case.names, case.inputs))


def _flatten_model(task: Task, params: Mapping[str, Any]) -> Flat:
    module = task.module
    with override_globals(module, params), replace_attributes(torch.nn.Module, _apply=_convert):
        model = make_module(module, module.Model, params)
        inputs, names, nest = bind_inputs(task.path, call_with(module.get_inputs, params), DEVICE, model.forward)
    state = dict((*model.named_parameters(), *model.named_buffers()))

    def keep_new(model: torch.nn.Module, *rest: Any) -> None:
        """Writes what `self.NAME = ...` has put in a buffer's place to the buffer, which alone stays."""
        for name, now in model.named_buffers():
            if name in weights and now is not weights[name]:
                weights[name].copy_(now)

    model.register_forward_hook(keep_new)
    weights = dict[str, Any]()

    def call(*flat: Any) -> Any:
        with override_globals(module, params):
            weights.update(zip(state, flat, strict=False))
            return torch.func.functional_call(model, weights, nest(lambda *inputs: inputs)(*flat[len(weights) :]))

    labels = [*(f"self.{n}" for n in state), *names]
    return (*_take_tensors(call, labels, [*state.values(), *inputs]), names, pick_symbols(names, inputs))


def _convert(module: torch.nn.Module, function: Callable[..., Any], recurse: bool = True) -> torch.nn.Module:
    """`Module._apply`, which a conversion in `__init__` calls: torch's own cannot put fake weights in others' place."""
    for child in module.children() if recurse else ():
        child._apply(function)
    for name, weight in module._parameters.items():
        if weight is not None:
            module._parameters[name] = torch.nn.Parameter(function(weight), weight.requires_grad)
    module._buffers.update({name: function(buffer) for name, buffer in module._buffers.items() if buffer is not None})
    return module


def _put_on_gpu(value: Any) -> Any:
    """Gives a tensor that was made from a number, and that has no device index, the index of the device.

    A float becomes a tensor of the CPU, or it would be made constant.
    """
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64, device="cpu")
    if not isinstance(value, torch.Tensor) or value.device == torch.device(DEVICE):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)


def _take_tensors(
    function: Callable[..., Any], names: Sequence[str], values: Sequence[Any]
) -> tuple[Callable[..., Any], list[Any], list[str]]:
    """(The function with every value bound that is neither tensor nor float, these as tensors, their names)."""
    values = [_put_on_gpu(value) for value in values]
    at = [i for i, value in enumerate(values) if isinstance(value, torch.Tensor)]

    def call(*tensors: Any) -> Any:
        full = list(values)
        for i, tensor in zip(at, tensors, strict=True):
            full[i] = tensor
        return function(*full)

    return call, [values[i] for i in at], [names[i] for i in at]
