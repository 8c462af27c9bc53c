"""The reference in the widest arithmetic in which it runs: float64 also where it names float32, or float32 on the CPU.

An exact answer that was rounded to float32 on its way would have eager's own roundings: eager's error would look like
none, and a kernel that rounds elsewhere like a wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from kernelsearch.verify.regime_words import OWN_REFERENCE

_CANNOT = (RuntimeError, TypeError, ValueError, LookupError, AssertionError)
"""The exceptions that torch and references raise where float64 is not supported."""

_DRAWN = frozenset({torch.rand, torch.randn, torch.rand_like, torch.randn_like, torch.normal})
_VIEWED = frozenset({torch.Tensor.view, torch.nextafter, torch.Tensor.nextafter})


def _gelu(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """GELU without the cancellation of torch's own form, which in float64 is 0 from x = -8.3 on.

    0.5 (1 + tanh(u)) is sigmoid(2u), and 0.5 (1 + erf(v)) is 0.5 erfc(-v).
    """
    if approximate == "tanh":
        return x * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return 0.5 * x * torch.special.erfc(-x / math.sqrt(2))


_EXACT = {torch.nn.functional.gelu: _gelu}
"""Functions of torch that lose digits in float64."""

_CASTS = {torch.Tensor.float: torch.float32, torch.Tensor.half: torch.float16, torch.Tensor.bfloat16: torch.bfloat16}


class WideningMode(TorchFunctionMode):
    """While it is active, code that asks torch for float32, or for no dtype, gets float64; random numbers stay eager's.

    Raises NotImplementedError for what depends on the bits of a number. more: other dtypes that become float64 too.
    """

    def __init__(self, *more: torch.dtype) -> None:
        super().__init__()
        self.widened = {torch.float32, *more}

    def _is_wide(self, value: Any) -> bool:
        return isinstance(value, torch.dtype) and value in self.widened

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if func in _EXACT and args[0].dtype is torch.float64:
            return _EXACT[func](*args, **kwargs)
        if func in _VIEWED:
            if args[0].dtype is torch.float64 and any(isinstance(v, _BITS) for v in (*args[1:], *kwargs.values())):
                raise NotImplementedError("the bits of a number are not those of float32")
        elif _CASTS.get(func) in self.widened:
            return args[0].to(torch.float64, copy=True)
        elif func not in _DRAWN and any(self._is_wide(v) for v in (*args, *kwargs.values())):
            names = {name: torch.float64 if self._is_wide(v) else v for name, v in kwargs.items()}
            result = func(*(torch.float64 if self._is_wide(v) else v for v in args), **names)
            return result.clone() if isinstance(result, torch.Tensor) and result is args[0] else result
        result = func(*args, **kwargs)
        if isinstance(result, torch.Tensor):  # nearly always; a tree takes ten times as long
            return self._widen(result)
        return tree_map_only(torch.Tensor, self._widen, result)

    def _widen(self, value: torch.Tensor) -> torch.Tensor:
        return value.double() if value.dtype in self.widened else value


_BITS = (torch.dtype, torch.Tensor)
"""Arguments with which `view` reads other bits, and `nextafter` takes a direction."""


@dataclass(frozen=True)
class Widest:
    """A reference with the cast of its inputs to its widest arithmetic; note says that this is not float64."""

    reference: Callable[..., Any]
    cast: Callable[[Any], Any]
    note: str = ""

    def widen(self, inputs: Sequence[Any]) -> list[Any]:
        """New inputs in the widest arithmetic."""
        cast = ((x, self.cast(x)) for x in inputs)
        return [new.clone() if new is x and isinstance(x, torch.Tensor) else new for x, new in cast]

    def run(self, inputs: Sequence[Any], mutates: Sequence[int] = ()) -> list[torch.Tensor]:
        """The outputs for inputs in the task's own dtypes."""
        return run_reference(self.reference, self.widen(inputs), mutates, copied=True)


def find_widest(
    reference64: Callable[..., Any], inputs: Sequence[Any], mutates: Sequence[int], shapes: Sequence[torch.Size]
) -> tuple[Widest, list[torch.Tensor]]:
    """The widest arithmetic in which the reference runs, and its outputs, which in eager have these shapes."""

    def widened(*values: Any) -> Any:
        with WideningMode():
            return reference64(*values)

    def widened_throughout(*values: Any) -> Any:
        with WideningMode(torch.float16, torch.bfloat16):
            return reference64(*values)

    reason, said = "", getattr(reference64, "said", None)  # that of a kernel that is its own reference
    for reference in (widened, reference64, widened_throughout) if said is None else (reference64,):
        widest = Widest(reference, partial(_cast, dtype=torch.float64))
        try:
            answers = widest.run(inputs, mutates)
        except torch.OutOfMemoryError:
            raise
        except _CANNOT as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            continue
        if reference is reference64 or [y.shape for y in answers] == list(shapes):
            return widest if said is None else replace(widest, note="; ".join([OWN_REFERENCE, *said])), answers
    note = f"the reference cannot run in float64 ({reason[:120]}): it ran in float32 on the CPU"
    widest = Widest(reference64, partial(_cast, dtype=torch.float32, device="cpu"), note)
    return widest, widest.run(inputs, mutates)


def run_reference(
    function: Callable[..., Any], inputs: Sequence[Any], mutates: Sequence[int] = (), *, copied: bool = False
) -> list[torch.Tensor]:
    """The outputs of a function: flattened return value, then changed inputs. copied: the inputs are copies already."""
    copies = list(inputs) if copied else [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
    with torch.no_grad():
        returned = function(*copies)
    return [y.detach() if y.requires_grad else y for y in flatten(returned)] + [
        copies[position] for position in mutates
    ]


def flatten(value: Any) -> list[torch.Tensor]:
    """The tensors of a return value in order: the reference's and the launcher's outputs. All else is left out."""
    leaves = [value] if isinstance(value, torch.Tensor) else tree_leaves(value)  # which takes long
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _cast(value: Any, dtype: torch.dtype, device: str | None = None) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device=device, dtype=dtype if value.is_floating_point() else value.dtype)
