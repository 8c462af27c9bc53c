"""What keeps torch from importing its compiler, which takes most of a second, in processes that compile nothing."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from inspect import getclosurevars
from types import FunctionType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A mode that is never compiled, the base class of modes that see every operation of torch."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def postpone_compiler() -> None:
    """Lets torch's functions that must not be compiled run as they are until somebody else imports the compiler.

    Each of them (a comparison of meta tensors) would import it at its first call, to say so. It sees no frozen objects.
    """
    marker = torch._disable_dynamo(lambda: None).__code__
    for kept in gc.get_objects():
        if type(kept) is FunctionType and kept.__code__ is marker:
            plain = getclosurevars(kept).nonlocals["fn"]
            plain.__dynamo_disable = _until_imported(kept, plain)


def _until_imported(kept: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return plain(*args, **kwargs)
        vars(plain).pop("__dynamo_disable", None)  # torch makes its own
        return kept(*args, **kwargs)

    return call
