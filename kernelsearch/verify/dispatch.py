"""The base class of modes that see every operation of torch."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A mode that is never compiled: torch would otherwise import its compiler, which takes seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class OperationNames(DispatchMode):
    """Keeps the names of the operations that run while it is active, in `seen`."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.seen.add(func._schema.name.removeprefix("aten::"))
        return func(*args, **(kwargs or {}))


def list_tensors(values: Any) -> list[torch.Tensor]:
    """The tensors among an operation's arguments or results; a tree of torch's takes ten times as long."""
    if isinstance(values, torch.Tensor):
        return [values]
    within = values.values() if isinstance(values, dict) else values if isinstance(values, (list, tuple)) else ()
    return [tensor for value in within for tensor in list_tensors(value)]
