"""The gradient of a function by autograd, as a function: what a gradient task takes for right, here and in packages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

Function = Callable[..., Any]


@dataclass(frozen=True)
class Gradient:
    """Which gradient of a function it is; numbers are positions of its inputs and of its results, which are flattened.

    count inputs are given; it is by the inputs `by`; the gradients of the results `driven` are given; `saved` are
    results that are given too, by name; the gradients of the inputs `inplace` take these inputs' places.
    """

    count: int
    by: tuple[int, ...]
    driven: tuple[int, ...]
    saved: Mapping[str, int]
    inplace: tuple[int, ...] = ()

    def name_inputs(self, function: Function) -> tuple[str, ...]:
        """The function's own parameters, what is saved, the gradients of its results."""
        own = tuple(inspect.signature(function).parameters)[: self.count]
        stem = "grad_out" if not any(name.startswith("grad_out") for name in own) else "grad_of_result"
        numbers = ("",) if len(self.driven) == 1 else self.driven
        return (*own, *self.saved, *(f"{stem}{number}" for number in numbers))

    def make_reference(self, function: Function, resumed: bool = False) -> Function:
        """The function of these inputs that gives the gradients; other parameters of the function keep their defaults.

        resumed: it goes on from what is saved, as a kernel may; else all is computed anew, which is what is right.
        """
        names = self.name_inputs(function)
        rest = list(inspect.signature(function).parameters.values())[self.count :]
        end = self.count + len(self.saved)

        def reference(*given: Any, **others: Any) -> Any:
            inputs, saved, outer = list(given[: self.count]), given[self.count : end], given[end : len(names)]
            others |= {p.name: value for p, value in zip(rest, given[len(names) :])}
            if torch.compiler.is_compiling():  # Dynamo traces no `autograd.grad`
                made = self._pull(function, inputs, outer, others)
            else:
                made = self._differentiate(function, inputs, outer, others, saved if resumed else ())
            for i, gradient in zip(self.by, made):
                if i in self.inplace:
                    inputs[i].copy_(gradient)
            back = tuple(g for i, g in zip(self.by, made) if i not in self.inplace)
            return back[0] if len(back) == 1 else back or None

        first = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        reference.__signature__ = inspect.Signature([*first, *rest])  # type: ignore[attr-defined]
        return reference

    def _differentiate(
        self, function: Function, inputs: Sequence[Any], outer: Sequence[Tensor], others: Any, saved: Sequence[Tensor]
    ) -> Sequence[Tensor]:
        own = [x.detach().requires_grad_() if i in self.by else x for i, x in enumerate(inputs)]
        given: list[tuple[Tensor, Tensor]] = []

        def unpack(kept: Tensor) -> Tensor:
            return next((x for result, x in given if _is_same(kept, result)), kept)

        hooks = torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, unpack) if saved else nullcontext()
        inside = torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False)
        with torch.enable_grad(), inside, hooks:  # autograd is off inside of an operator
            results = flatten(function(*own, **others))
            given += [(results[i], x) for i, x in zip(self.saved.values(), saved)]
            return torch.autograd.grad([results[i] for i in self.driven], [own[i] for i in self.by], outer)

    def _pull(
        self, function: Function, inputs: Sequence[Any], outer: Sequence[Tensor], others: Any
    ) -> Sequence[Tensor]:
        def run(*tensors: Tensor) -> tuple[Tensor, ...]:
            own = list(inputs)
            for i, tensor in zip(self.by, tensors):
                own[i] = tensor
            results = flatten(function(*own, **others))
            return tuple(results[i] for i in self.driven)

        made: Sequence[Tensor] = torch.func.vjp(run, *(inputs[i] for i in self.by))[1](tuple(outer))
        return made

    def make_inputs(self, function: Function, get_inputs: Function) -> Function:
        """`get_inputs` of the gradient, made of the function's own: it takes the same sizes."""

        def get(**params: Any) -> list[Any]:
            made = get_inputs(**params)
            given = [made] if isinstance(made, Tensor) else list(made)
            results = run_forward(function, given)
            outer = [torch.randn(results[i].shape, dtype=results[i].dtype) for i in self.driven]
            return [*given, *(results[i] for i in self.saved.values()), *outer]

        get.__name__ = "get_inputs"
        get.__signature__ = inspect.signature(get_inputs)  # type: ignore[attr-defined]
        return get

    def make_empty(self, inputs: Sequence[Any]) -> Any:
        """Results without values."""
        made = tuple(torch.empty_like(inputs[i]) for i in self.by if i not in self.inplace)
        return made[0] if len(made) == 1 else made or None

    def complete(self, function: Function, inputs: Sequence[Any]) -> list[Any]:
        """The inputs with what is saved computed from the others, as a forward pass does."""
        given, rest = list(inputs[: self.count]), inputs[self.count + len(self.saved) :]
        results = run_forward(function, given) if self.saved else []
        return [*given, *(results[i] for i in self.saved.values()), *rest]


def run_forward(function: Function, inputs: Sequence[Any]) -> list[Tensor]:
    """The function's results, without gradients."""
    with torch.no_grad():
        return flatten(function(*inputs))


def flatten(result: Any) -> list[Tensor]:
    return [x for x in tree_leaves(result) if isinstance(x, Tensor)]


def _is_same(one: Tensor, other: Tensor) -> bool:
    same = one.untyped_storage()._cdata == other.untyped_storage()._cdata
    return same and one.shape == other.shape and one.stride() == other.stride()
