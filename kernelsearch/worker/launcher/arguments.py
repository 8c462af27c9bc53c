"""The arguments of a launch as a kernel gets them: numbers, tensors, and descriptors as Triton's `TensorDescriptor`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelsearch.kernel.launch import HostDescriptor, LaunchStep, Passed, Scratch


def resolve_arguments(
    step: LaunchStep, passed: Mapping[str, Any], scratch: Mapping[str, torch.Tensor]
) -> dict[str, Any]:
    """Each argument of a step; passed are the launcher's own, scratch the buffers of the plan."""
    return {name: _resolve(arg, passed, scratch) for name, arg in step.args.items()}


def _resolve(arg: Any, passed: Mapping[str, Any], scratch: Mapping[str, torch.Tensor]) -> Any:
    match arg:
        case Passed(name=name):
            return passed[name]
        case Scratch(name=name):
            return scratch[name]
        case HostDescriptor(base=base, shape=shape, stride=stride, block=block):
            tensor = _tensor_in(_resolve(base, passed, scratch))
            return TensorDescriptor(tensor, list(shape), list(stride), list(block))
    return arg


def tensors_in(args: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors among arguments, and those that descriptors describe, by the arguments' names."""
    named = {name: _tensor_in(value) for name, value in args.items()}
    return {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}


def replace_tensors(args: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The arguments with other tensors in place of those of `tensors_in`."""
    return {
        name: replace(value, base=tensors[name]) if isinstance(value, TensorDescriptor) else tensors.get(name, value)
        for name, value in args.items()
    }


def _tensor_in(value: Any) -> Any:
    return value.base if isinstance(value, TensorDescriptor) else value
