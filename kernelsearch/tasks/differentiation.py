"""The gradient of a function by autograd, as a function: what a gradient task takes for right, here and in packages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._functorch.config as functorch_config
from torch import Tensor
from torch.utils._pytree import tree_leaves

Function = Callable[..., Any]
BACKWARD = "compiled backward"
"""The baseline of what training runs today: the backward graph of a compiled forward, from what that has saved."""


@dataclass(frozen=True)
class Gradient:
    """Which gradient of a function it is; numbers are positions of its inputs and of its results, which are flattened.

    count inputs are given; it is by the inputs `by`; the gradients of the results `driven` are given; `saved` are
    results that are given too, by name; the gradients of the inputs `inplace` take these inputs' places.
    """

    count: int
    by: tuple[int, ...]
    driven: tuple[int, ...] = ()
    saved: Mapping[str, int] = field(default_factory=dict)
    inplace: tuple[int, ...] = ()

    def make_reference(self, function: Function, resumed: bool = False) -> Function:
        """The function of its inputs, what is saved and its results' gradients that gives the gradients.

        resumed: it goes on from what is saved, as a kernel may; else all is computed anew, which is what is right.
        """
        parameters = list(inspect.signature(function).parameters.values())
        first, rest = [p.name for p in parameters[: self.count]], parameters[self.count :]
        numbers = self.driven if len(self.driven) > 1 else ("",)
        names, end = [*first, *self.saved, *(f"grad_out{i}" for i in numbers)], self.count + len(self.saved)

        def reference(*given: Any, **others: Any) -> Any:
            inputs, saved, outer = list(given[: self.count]), given[self.count : end], given[end : len(names)]
            others |= {p.name: value for p, value in zip(rest, given[len(names) :])}
            if torch.compiler.is_compiling():  # Dynamo traces no `autograd.grad`
                own = [inputs[i] for i in self.by]
                made = torch.func.vjp(lambda *by: self.pick(self.run(function, inputs, by, others)), *own)[1](outer)
            else:
                made = self._differentiate(function, inputs, outer, others, saved if resumed else ())
            for i, gradient in zip(self.by, made):
                if i in self.inplace:
                    inputs[i].copy_(gradient)
            back = tuple(g for i, g in zip(self.by, made) if i not in self.inplace)
            return back[0] if len(back) == 1 else back or None

        own = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        reference.__signature__ = inspect.Signature([*own, *rest])  # type: ignore[attr-defined]
        return reference

    def run(self, function: Function, inputs: Sequence[Any], by: Sequence[Any], others: Any) -> list[Tensor]:
        """The function's results, with these in the places of the inputs that it is by."""
        own = list(inputs)
        for i, tensor in zip(self.by, by):
            own[i] = tensor
        return flatten(function(*own, **others))

    def pick(self, results: Any) -> tuple[Any, ...]:
        """The results whose gradients are given."""
        return tuple(results[i] for i in self.driven)

    def _differentiate(
        self, function: Function, inputs: Sequence[Any], outer: Sequence[Tensor], others: Any, saved: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        by = [inputs[i].detach().requires_grad_() for i in self.by]
        given: list[tuple[Tensor, Tensor]] = []

        def unpack(kept: Tensor) -> Tensor:
            own = (kept.untyped_storage()._cdata, kept.shape, kept.stride())
            return next((x for y, x in given if (y.untyped_storage()._cdata, y.shape, y.stride()) == own), kept)

        hooks = torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, unpack) if saved else nullcontext()
        inside = torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False)
        with torch.enable_grad(), inside, hooks:  # autograd is off inside of an operator
            results = self.run(function, inputs, by, others)
            given += [(results[i], x) for i, x in zip(self.saved.values(), saved)]
            return torch.autograd.grad(self.pick(results), by, outer)

    def make_inputs(self, function: Function, get_inputs: Function) -> Function:
        """`get_inputs` of the gradient, made of the function's own: it takes the same sizes."""

        def get(**params: Any) -> list[Any]:
            made = get_inputs(**params)
            given = [made] if isinstance(made, Tensor) else list(made)
            with torch.no_grad():
                results = flatten(function(*given))
            outer = (torch.randn(y.shape, dtype=y.dtype) for y in self.pick(results))
            return [*given, *(results[i] for i in self.saved.values()), *outer]

        get.__signature__ = inspect.signature(get_inputs)  # type: ignore[attr-defined]
        return get

    def make_backward(self, function: Function, compiled: bool = True) -> Function:
        """The baseline: its first call at these tensors runs the forward pass, which is in no later one's time.

        compiled: by torch.compile; else as it stands, on copies of the inputs, and also where its backward pass writes
        into what it has saved, which gives wrong values from the second call on, in the same time.
        """
        held: list[Any] = [None]

        def backward(*inputs: Any) -> Any:
            with functorch_config.patch(donated_buffer=False):  # a graph that is kept
                if held[0] != (key := [inputs[i].data_ptr() for i in self.by]):
                    own = (inputs[i].data if compiled else inputs[i].clone() for i in self.by)
                    by = [x.requires_grad_() for x in own]  # a timer writes other values to its inputs
                    unchecked = torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, lambda kept: kept)
                    with torch.enable_grad(), nullcontext() if compiled else unchecked:
                        forward = torch.compile(function, dynamic=False) if compiled else function
                        held[:] = [key, self.pick(self.run(forward, inputs[: self.count], by, {})), by]
                outer = inputs[self.count + len(self.saved) :][: len(self.driven)]
                return torch.autograd.grad(held[1], held[2], outer, retain_graph=True)

        return backward

    def complete(self, function: Function, inputs: Sequence[Any]) -> list[Any]:
        """The inputs with what is saved computed from the others, as a forward pass does."""
        with torch.no_grad():
            results = flatten(function(*inputs[: self.count])) if self.saved else []
        saved = (results[i] for i in self.saved.values())
        return [*inputs[: self.count], *saved, *inputs[self.count + len(self.saved) :]]


def flatten(result: Any) -> list[Tensor]:
    return [x for x in tree_leaves(result) if isinstance(x, Tensor)]
