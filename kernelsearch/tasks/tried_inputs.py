"""Inputs of a shape that nobody has named: how many elements they have, and whether the reference takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelsearch.core.errors import TaskError
from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.tasks.task import Builder, Params

MOST_TRIED = 1 << 22
"""Elements of inputs on which a reference is run to see whether it takes them, and of what get_inputs makes then."""


def count_input_elements(build: Builder, params: Params) -> int | None:
    """The number of elements of all inputs; None when the reference does not take them.

    Tried on meta tensors, and where inputs or results depend on data on real ones, if these are few.
    """
    try:
        try:
            case = build(params, 0, "meta")
        except (TaskError, *USER_ERRORS):  # get_inputs reads values
            with _FewElements():
                case = build(params, 0, "cpu")
        count = sum(v.numel() for v in case.inputs if isinstance(v, torch.Tensor))
        try:
            with torch.device("meta"):  # where a stand-in for a GPU makes its tensors then
                case.reference(*case.inputs)
        except USER_ERRORS:
            if count > MOST_TRIED:
                return None
            case = build(params, 0, "cpu")
            case.reference(*case.inputs)
    except (TaskError, *USER_ERRORS):
        return None
    return count


class _FewElements(TorchFunctionMode):
    """While it is active, tensors are not made of more than MOST_TRIED elements at once. Raises TaskError."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in _FACTORIES:
            formal = {name: value for name, value in kwargs.items() if name not in ("generator", "device")}
            if func(*args, **formal, device="meta").numel() > MOST_TRIED:
                raise TaskError("its inputs are large")
        return func(*args, **kwargs)


_FACTORIES = frozenset({torch.randn, torch.rand, torch.randint, torch.zeros, torch.ones, torch.empty, torch.full})
