"""Finds timed shapes that do not fit the device's memory, and suggests smaller ones; allocates no memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from kernelsearch.core.errors import TaskError
from kernelsearch.core.formats import LEFT_OUT
from kernelsearch.kernel.targets import Target
from kernelsearch.tasks.facts import label_shape
from kernelsearch.tasks.task import Task
from kernelsearch.verify.pieces import LARGE
from kernelsearch.worker.launcher.arguments import tensors_in

MEMORY_GB = {"h100": 80, "h200": 141, "a100": 40, "l4": 24, "l40s": 48, "rtx4090": 24, "b200": 180}
MEMORY_GB |= {"rtx5090": 32, "a10g": 24, "t4": 16, "mi300x": 192, "mi355x": 288}
"""Device memory from the datasheets (the smallest A100; B200 as in HGX), for machines without a live device."""
RESERVED = 0.1
"""Share of the memory that contexts, libraries and fragments take."""
STAGED = 3
FLOAT64S = 6
LARGE_FLOAT64S = 2
"""Copies that the judge keeps of each element that a kernel touches: the element, two staged copies (the arena, the
rotated inputs) and about six float64 values (the answer, the moved answer, limits), two where an output is judged in
pieces; the reference's own come on top."""

_LaunchesAt = Callable[[Task, str], Any]


def memory_of(target: Target) -> int:
    """Bytes of a machine by its name; the smallest known one for another name."""
    return int(MEMORY_GB.get(target.name, min(MEMORY_GB.values())) * 1e9)


def _list_tensors(launches: Any) -> list[torch.Tensor]:
    """The tensors that launches are given, each once."""
    return list({id(v): v for launch in launches for v in tensors_in(launch.args).values()}.values())


def count_needed_bytes(launches: Any) -> int:
    """The least bytes for judging one shape, from the tensor arguments of its launches."""
    return sum(
        v.numel() * (STAGED * v.element_size() + 8 * (LARGE_FLOAT64S if v.numel() > LARGE else FLOAT64S))
        for v in _list_tensors(launches)
    )


def leave_out_large(
    task: Task, launches: Mapping[str, Any], memory: int, here: int | None = None
) -> tuple[Task, tuple[str, ...]]:
    """The task without shapes whose tensors alone need more than the memory, and a sentence for each of those.

    here is this machine's memory where no GPU runs kernels: a tensor of a timed shape must fit it, and all that the
    judge of a test shape needs. Raises TaskError if no timed shape is left, or no test shape of several.
    """
    kept: dict[str, list[Any]] = {"timed": [], "test": []}
    notes: dict[str, list[str]] = {"timed": [], "test": []}
    for kind, (key, params) in (*(("timed", s) for s in task.shapes), *(("test", s) for s in task.test_shapes)):
        passed = (v.untyped_storage() for v in _list_tensors(launches.get(key, ())))
        sizes = {storage._cdata: storage.nbytes() for storage in passed}  # views lie in one memory
        size, where, most = sum(sizes.values()), "the device", memory
        fits = size <= memory * (1 - RESERVED)
        if fits and here is not None:
            size = count_needed_bytes(launches.get(key, ())) if kind == "test" else max(sizes.values(), default=0)
            fits, where, most = size <= here, "this machine", here
        if fits:
            kept[kind].append((key, params))
            continue
        need = f"the {kind} shape {label_shape(task, key)} needs {size / 1e9:.0f} GB ({size:,} bytes)"
        notes[kind].append(f"{need} and {where} has {most / 1e9:.0f}")
    for kind, left_out in notes.items():
        if left_out and not kept[kind]:
            raise TaskError(f"{task.path.name}: no {kind} shape fits: {left_out[0]} GB")
    left = replace(task, shapes=tuple(kept["timed"]), test_shapes=tuple(kept["test"]))
    return left, tuple(f"{note} GB: {LEFT_OUT}" for note in (*notes["timed"], *notes["test"]))


def has_large_tensor(launches: Any) -> bool:
    """Whether outputs may be so large that rows which stand alone are judged a few at a time."""
    return any(v.numel() > LARGE for v in _list_tensors(launches))


def write_fit_notes(task: Task, memory: int, launches_at: _LaunchesAt) -> tuple[str, ...]:
    """One sentence for each timed shape that needs more than the memory, with a shape that would fit.

    launches_at returns the launches of a task at a shape, on stand-in tensors.
    """
    notes = []
    for key, params in task.shapes:
        launches = launches_at(task, key)
        size = count_needed_bytes(launches)
        if size <= memory * (1 - RESERVED):
            continue
        smaller = _smaller(task, params, memory, launches_at)
        offer = f"; {' '.join(f'{k}={v}' for k, v in smaller.items())} would fit" if smaller else ""
        need = f"the timed shape {label_shape(task, key)} needs about {size / 1e9:.0f} GB to be judged"
        need += ", where its rows depend on each other," if has_large_tensor(launches) else ""
        notes.append(f"{need} and the device has {memory / 1e9:.0f} GB{offer}")
    return tuple(notes)


def _smaller(task: Task, params: Mapping[str, Any], memory: int, launches_at: _LaunchesAt) -> dict[str, Any]:
    """The changed integers after halving the largest as often as needed; empty if that does not help."""
    current = dict(params)
    for _ in range(64):
        numbers = {k: v for k, v in current.items() if type(v) is int and v > 1}
        if not numbers:
            return {}
        largest = max(numbers, key=numbers.__getitem__)
        current[largest] = math.ceil(numbers[largest] / 2)
        try:
            size = count_needed_bytes(launches_at(replace(task, shapes=(("timed:0", dict(current)),)), "timed:0"))
        except TaskError:
            return {}
        if size <= memory * (1 - RESERVED):
            return {k: v for k, v in current.items() if v != params[k]}
    return {}
