"""Float32 twins: a task and a kernel with float32 in place of every 16-bit float.

Triton's interpreter does arithmetic on bfloat16 as if it were an integer type. So without a GPU a 16-bit task is
judged on its twin. That proves the algorithm, not its rounding; the verdict says so.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelsearch.core.types import ArgFact, DtypeFact
from kernelsearch.verify.pieces import copy_tensor

_HALF = (torch.bfloat16, torch.float16)
_HALF_NAMES = re.compile(r"\btl\.(?:bfloat16|float16)\b")
_METHODS = {torch.Tensor.half: torch.Tensor.float, torch.Tensor.bfloat16: torch.Tensor.float}


class TwinMode(TorchFunctionMode):
    """While it is active, code that asks torch for a 16-bit float gets float32."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = {k: _widen(v) for k, v in (kwargs or {}).items()}
        return _METHODS.get(func, func)(*(_widen(a) for a in args), **kwargs)


def widen_source(code: str) -> str:
    """The kernel's code with `tl.float32` in place of `tl.bfloat16` and `tl.float16`."""
    return _HALF_NAMES.sub("tl.float32", code)


def widen_constant(value: ArgFact) -> ArgFact:
    """The argument; fp32 in place of a 16-bit float dtype."""
    return DtypeFact("fp32") if isinstance(value, DtypeFact) and value.name in ("bf16", "fp16") else value


def widen_tensor(tensor: Any) -> Any:
    """The value; a 16-bit float tensor as float32, in the same strides."""
    half = isinstance(tensor, torch.Tensor) and tensor.dtype in _HALF
    return copy_tensor(tensor, torch.float32) if half else tensor


def _widen(value: Any) -> Any:
    return torch.float32 if isinstance(value, torch.dtype) and value in _HALF else value
