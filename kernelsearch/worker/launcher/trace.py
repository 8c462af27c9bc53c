"""What a launcher launches at one shape, as facts: the launcher runs, its kernels do not.

Without a GPU the inputs live on the meta device, so that a trace of the largest shape costs no
memory; where a launcher needs values (`.item()`), they are zeros on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from kernelsearch.core.errors import TaskError
from kernelsearch.core.types import Config, LaunchFact, TensorFact, Trace
from kernelsearch.kernel.targets import Target, named
from kernelsearch.tasks.load import load
from kernelsearch.tasks.module import USER_ERRORS, said
from kernelsearch.tasks.task import Case, Task
from kernelsearch.worker.launcher.intercept import Launch, arg_fact, intercepted, tensor_fact
from kernelsearch.worker.launcher.standin import standing_in


@dataclass(frozen=True)
class Run:
    """One run of a launcher with nothing launched: its launches, and the tensors that it returned."""

    launches: tuple[Launch, ...]
    outputs: tuple[torch.Tensor, ...]
    case: Case


def open_task(path: Any, target: Target | None = None, need_kernel: bool = True) -> Task:
    """Loads a task file; given a target, as if this machine had that GPU. None means the live device.

    On a stand-in, kernels that the file's top level launches are passed over.
    """
    if target is None:
        return load(path, need_kernel)
    with standing_in(target, "cpu"), intercepted(lambda launch: None):
        return load(path, need_kernel)


def trace(
    task: Task, key: str, target: Target | None = None, device: str | None = None, config: Config | None = None
) -> Trace:
    """The launches of the task's launcher at one shape, in order.

    device is `meta` unless given; `cuda` runs on the live device and needs no target. config is
    what heuristics are evaluated with (besides the autotuner's first config). Raises TaskError
    when the launcher fails or launches nothing.
    """
    return Trace(key, tuple(launch_fact(launch, config) for launch in run(task, key, target, device).launches))


def run(task: Task, key: str, target: Target | None = None, device: str | None = None) -> Run:
    """Runs the launcher at one shape, intercepted. Raises TaskError."""
    if device is not None:
        return _run(task, key, target or named("h100"), device)
    try:
        return _run(task, key, target or named("h100"), "meta")
    except TaskError:
        return _run(task, key, target or named("h100"), "cpu")


def output_facts(
    task: Task, key: str, target: Target | None = None
) -> tuple[tuple[TensorFact, ...], tuple[TensorFact, ...]]:
    """(The reference's outputs, the launcher's outputs) at one shape as facts.

    The reference really runs, on the CPU: ask for a small shape.
    """
    chosen = target or named("h100")
    done = run(task, key, chosen)
    with standing_in(chosen, "cpu"):
        case = task.build(key, 0, "cpu")
        _must_name_inputs(task, case.names)
        launched: list[Launch] = []
        try:
            with intercepted(launched.append):
                result = case.reference(*case.inputs)
        except USER_ERRORS as error:
            raise TaskError(
                f"{task.path.name}: the reference fails at {_label(task, key)}: {said(error, task.path)}"
            ) from error
    if launched:
        raise TaskError(
            f"{task.path.name}: the reference launches {launched[0].site}: it says what is right, so it must be PyTorch alone"
        )
    named_inputs = dict(zip(case.names, case.inputs, strict=True))
    expected = (*_tensors(result), *(named_inputs[n] for n in task.mutates if n in named_inputs))
    return tuple(map(tensor_fact, expected)), tuple(map(tensor_fact, done.outputs))


def _must_name_inputs(task: Task, names: tuple[str, ...]) -> None:
    """Raises TaskError when MUTATES or DOMAIN speaks of an input that there is not: it would silently not hold."""
    for word, said_of in (("MUTATES", task.mutates), ("DOMAIN", task.domain)):
        for name in said_of:
            if name not in names:
                raise TaskError(
                    f"{task.path.name}: {word} names {name!r}, which is no input; they are {', '.join(names)}"
                )


def launch_fact(launch: Launch, config: Config | None = None) -> LaunchFact:
    """A launch as data. Names that an autotuner's configs provide are absent; heuristics are evaluated under config."""
    bound = launch.bound(config) if launch.heuristics else launch.args
    kept = {n: bound[n] for n in launch.params if n in launch.args or n in launch.heuristics}
    args = {name: arg_fact(value, f"{name!r} of {launch.site}") for name, value in kept.items()}
    return LaunchFact(launch.site, args, dict(launch.options), None if callable(launch.grid) else launch.grid)


def _run(task: Task, key: str, target: Target, device: str) -> Run:
    launches: list[Launch] = []
    with nullcontext() if device == "cuda" else standing_in(target, device):
        with _LazyZeros() if device == "cpu" else nullcontext():
            case = task.build(key, 0, device)
        if case.launch is None:
            raise TaskError(f"{task.path.name} has no kernel to launch")
        result = _launched(task, key, case, launches.append)
    if not launches:
        raise TaskError(f"{task.path.name}: the launcher launches no kernel at {_label(task, key)}")
    named_inputs = dict(zip(case.names, case.inputs, strict=True))
    mutated = [named_inputs[n] for n in task.mutates if n in named_inputs]
    return Run(tuple(launches), (*_tensors(result), *mutated), case)


def _launched(task: Task, key: str, case: Case, on_launch: Callable[[Launch], Any]) -> Any:
    try:
        with intercepted(on_launch):
            return case.launch(*case.inputs)
    except USER_ERRORS as error:
        raise TaskError(
            f"{task.path.name}: the launcher fails at {_label(task, key)}: {said(error, task.path)}"
        ) from error


def _tensors(result: Any) -> tuple[torch.Tensor, ...]:
    return tuple(leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))


def _label(task: Task, key: str) -> str:
    return f"{key} ({' '.join(f'{k}={v}' for k, v in task.params(key).items())})"


class _LazyZeros(TorchFunctionMode):
    """Random factories give zeros whose memory the system hands out only when it is touched."""

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if func not in _RANDOM:
            return func(*args, **kwargs)
        kwargs.pop("generator", None)
        with torch._C.DisableTorchFunction():
            return lazy_zeros(func(*args, **{**kwargs, "device": "meta"}))


_RANDOM = frozenset({torch.randn, torch.rand, torch.randint, torch.zeros, torch.empty})


def lazy_zeros(model: torch.Tensor) -> torch.Tensor:
    """CPU zeros of a meta tensor's shape, strides and dtype, from pages not touched yet, aligned to 64 bytes."""
    with torch._C.DisableTorchFunction():
        count = 1 + sum((n - 1) * s for n, s in zip(model.shape, model.stride(), strict=True)) if model.numel() else 0
        size = count * model.dtype.itemsize
        raw = np.zeros(size + 64, dtype=np.uint8)
        start = -raw.ctypes.data % 64
        flat = torch.from_numpy(raw[start : start + size]).view(model.dtype)
        return flat.as_strided(model.shape, model.stride())
