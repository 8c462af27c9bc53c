"""A loaded task: inputs, reference and launcher for each of its shapes, in a trusted process with torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from kernelsearch.core.errors import TaskError
from kernelsearch.core.timed_shapes import DRAWN, split_drawn
from kernelsearch.tasks.differentiation import Gradient
from kernelsearch.tasks.module import SEED_LAUNCHER
from kernelsearch.tasks.reach import find_kernels

Params = Mapping[str, Any]
_TRACED = (torch.SymInt, torch.SymFloat, torch.SymBool)
INPUTS = (torch.Tensor, torch.dtype, torch.layout, torch.memory_format, bool, int, float, complex, str, *_TRACED)
"""What the inputs of a task are made of: what can be sent to a worker, and numbers while TorchInductor traces."""


def check_inputs(file: str, inputs: Mapping[str, Any]) -> None:
    """Raises TaskError if some of a file's inputs are of no such kind."""
    for name, value in inputs.items():
        for leaf in tree_leaves(value):
            if leaf is not None and not isinstance(leaf, INPUTS):
                known = "only tensors, numbers, words, dtypes and lists of these can be inputs"
                raise TaskError(f"{file}: the input {name} has a {type(leaf).__name__}: {known}")


@dataclass(frozen=True)
class Case:
    """One shape of a task with one seed's inputs.

    inputs come from the task's get_inputs; names are the parameters that they bind to. reference takes such inputs,
    reference64 takes them with floating tensors in float64, launch is the user's launcher, None for a task that has no
    kernel yet. All three return the result of the user's code, without gradients. complete makes inputs that agree of
    changed ones, where some follow from others; start is what a first kernel is made of where that is not reference.
    """

    inputs: tuple[Any, ...]
    names: tuple[str, ...]
    reference: Callable[..., Any]
    reference64: Callable[..., Any]
    launch: Callable[..., Any] | None
    complete: Callable[[Sequence[Any]], list[Any]] = list
    start: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Forward:
    """The task that another one is the gradient of: its file, which gradient, its reference."""

    path: Path
    gradient: Gradient
    function: Callable[..., Any]


Builder = Callable[[Params, int, str], Case]
"""Makes the case for a shape's parameters, a seed and a device."""


@dataclass(frozen=True)
class Task:
    """A task file, loaded. shapes and test_shapes pair a key (`timed:0`, `test:1`) with its parameters.

    roots are the launcher's function or class, where kernels are looked for; space and config are the file's SPACE and
    CONFIG, or None; constraints hold for every config worth a trial; mutates names the inputs that the launcher writes
    to; domain narrows inputs (`{"x": "positive"}`); notes are for the user. digest covers this
    file's own text (and that of a gradient's forward), not the modules that it imports.
    """

    name: str
    path: Path
    digest: str
    form: str
    shapes: tuple[tuple[str, Params], ...]
    test_shapes: tuple[tuple[str, Params], ...]
    builder: Callable[[Params, int, str], Case]
    module: ModuleType
    roots: tuple[Any, ...] = ()
    precision: str = "ieee"
    tolerance: Any = None
    mutates: tuple[str, ...] = ()
    domain: Mapping[str, str] = field(default_factory=dict)
    space: Mapping[str, Any] | None = None
    config: Mapping[str, Any] | None = None
    constraints: tuple[str, ...] = ()
    baselines: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    forward: Forward | None = None

    @property
    def is_seeded(self) -> bool:
        """Whether its launcher was written by `kernelsearch seed`."""
        return hasattr(self.module, SEED_LAUNCHER)

    @property
    def keys(self) -> tuple[str, ...]:
        """All shapes' keys, timed ones first."""
        return tuple(key for key, _ in (*self.shapes, *self.test_shapes))

    def params(self, key: str) -> Params:
        if key.startswith(DRAWN):
            base, sizes = split_drawn(key)
            return {**self.params(base), **sizes}
        shapes = dict((*self.shapes, *self.test_shapes))
        if key not in shapes:
            raise TaskError(f"{self.name} has no shape {key!r}; it has {', '.join(self.keys)}")
        return shapes[key]

    def build(self, key: str, seed: int = 0, device: str = "cpu") -> Case:
        """Inputs and callables of one shape; tensors are made on device, under torch's seed.

        A file that names "cuda" itself needs the stand-in (`worker/launcher/standin.py`) around this call on a machine
        without a GPU. Raises TaskError when the user's code fails.
        """
        return self.builder(self.params(key), seed, device)

    def bytes_moved(self, key: str) -> int | None:
        """The file's `bytes_moved(**shape)`, in bytes; None when it has none."""
        return self._evaluate("bytes_moved", key)

    def flops(self, key: str) -> int | None:
        """The file's `flops(**shape)`; None when it has none."""
        return self._evaluate("flops", key)

    def kernels(self) -> dict[str, Any]:
        """Triton kernels that the launcher's code can reach, by name, each with its outermost decorator."""
        return find_kernels(self.roots)

    def _evaluate(self, name: str, key: str) -> int | None:
        function = getattr(self.module, name, None)
        if function is None:
            return None
        if not callable(function):
            raise TaskError(f"{self.path.name}: {name} must be a function of the shape's parameters")
        accepted = inspect.signature(function).parameters
        anything = any(p.kind is p.VAR_KEYWORD for p in accepted.values())
        params = {k: v for k, v in self.params(key).items() if anything or k in accepted}
        for parameter, p in accepted.items():
            if p.default is p.empty and parameter not in params and p.kind is not p.VAR_KEYWORD:
                raise TaskError(f"{self.path.name}: {name} asks for {parameter!r}, which is no parameter of the shape")
        return int(function(**params))
