"""Runs the user's launcher on a CPU with its kernels replaced by those of a candidate, for whoever evaluates them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from kernelsearch.core.types import LaunchFact
from kernelsearch.kernel.launch import LaunchStep, Plan, bind_launch
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import Target
from kernelsearch.tasks.facts import label_shape
from kernelsearch.tasks.module import read_text
from kernelsearch.worker.judging import planning
from kernelsearch.worker.launcher import intercept, opening, standin, tensors, trace
from kernelsearch.worker.launcher.arguments import resolve_arguments
from kernelsearch.worker.launcher.fills import UnfilledCode
from kernelsearch.worker.messages.jobs import CandidateJob


@dataclass(frozen=True)
class CandidateLaunch:
    """One launch of a function of a kernel: its step in a plan, its arguments by name, tensors on the CPU.

    fresh are the addresses of storages that hold poison where nothing was written.
    """

    kernel: Kernel
    plan: Plan
    step: LaunchStep
    fact: LaunchFact
    args: dict[str, Any]
    fresh: frozenset[int]


def run_launcher(
    path: str,
    candidate: CandidateJob,
    shape: str,
    values: list[Any],
    execute: Callable[[CandidateLaunch], None],
    num_sms: int = 0,
    poison: float | None = None,
    most: int | None = None,
    fill: int = 0,
    places: list[str] | None = None,
) -> list[torch.Tensor]:
    """The outputs of one call with these values; execute does each launch. Raises LaunchError, and what execute raises.

    poison, most, fill, places: of `standin.poison_empty`, for what the launcher allocates and fills.
    """
    c = candidate

    def on_launch(launch: Any) -> None:
        launch.run_pre_hooks(c.config)
        fact = trace.as_launch_fact(launch, c.config)
        sms = num_sms or c.target.num_sms
        bound = bind_launch(c.kernel, c.config, c.seed, c.seed_config, c.sites, fact, launch.resolve_grid, sms)
        plan, passed = bound.plan, launch.args
        scratch = {n: tensors.make_scratch(b, "cpu") for n, b in plan.scratch.items()}
        fresh = poisoned | {t.untyped_storage().data_ptr() for n, t in scratch.items() if not plan.scratch[n].zero}
        for name, value in plan.init.items():
            passed[name].fill_(value)
            fresh.discard(passed[name].untyped_storage().data_ptr())
        for step in plan.steps:
            args = resolve_arguments(step, passed, scratch)
            execute(CandidateLaunch(bound.kernel, plan, step, fact, args, frozenset(fresh)))

    task, case = open_task(path, c.target), open_case(path, shape, c.target)
    with (
        standin.pretend_gpu(c.target, "cpu"),
        standin.poison_empty(poison, most, fill, places) as poisoned,
        intercept.intercept_launches(on_launch),
        UnfilledCode(c.fills).applied(),
    ):
        result = case.launch(*values)
    return tensors.flatten_result(result, case.names, values, task.mutates)


def find_inputs(path: str, shape: str, target: Target, values: list[Any]) -> frozenset[int]:
    """The addresses of the storages of inputs that a launch must not change."""
    task, names = open_task(path, target), open_case(path, shape, target).names
    named = [(n, v) for n, v in zip(names, values, strict=True) if isinstance(v, torch.Tensor)]
    return frozenset(v.untyped_storage().data_ptr() for n, v in named if n not in task.mutates)


def name_line(reason: str, line: str, file: str) -> str:
    """The reason with the line of the kernel, and where that stands in the task's file, if the kernel is its own."""
    numbers = [n for n, text in enumerate(read_text(file).splitlines(), 1) if text.strip() == line] if file else []
    where = f" (line {' or '.join(map(str, numbers))} of {Path(file).name})" if numbers else ""
    return f"{reason}, at `{line}`{where}"


def describe_shape(path: str, shape: str, target: Target) -> dict[str, str]:
    """A shape's key and label, for the detail of a verdict."""
    return {"shape": shape, "label": label_shape(open_task(path, target), shape)}


@lru_cache(maxsize=4)
def open_task(path: str, target: Target) -> Any:
    """The task of a file with all its shapes."""
    return planning.add_long_shapes(opening.open_task(path, target))


@lru_cache(maxsize=64)
def open_case(path: str, shape: str, target: Target) -> Any:
    """The case of a shape, for its launcher, its weights and the form of its inputs, whose values are not used."""
    task = open_task(path, target)
    if task.form != "kernelbench":
        return trace.build_formal(task, shape, target)
    return trace.build_real(task, shape, target)
