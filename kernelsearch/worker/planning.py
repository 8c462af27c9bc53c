"""What is judged at full depth besides the regimes: moved elements, rows that lie apart, sizes that are only timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kernelsearch.targets import Target
from kernelsearch.tasks.facts import smallest
from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.tasks.task import Task
from kernelsearch.worker.jobs import Case

PROBES = 4
"""Single elements that are moved, of each input: the first of those that the answer shows."""
LONG_PROGRAMS = 16
LONG_ELEMENTS = 2**19
LONG_SHAPES = 4
"""Limits of a `long` shape, so that the interpreter can afford it."""


def probed(base: Case, inputs: list[Any], expected: Callable[[Case], Any]) -> tuple[Case, ...]:
    """The case with single elements of its inputs moved, as far as the reference's answer shows it."""
    from kernelsearch.verify.judge import is_seen, probes

    found: dict[int, list[Case]] = {}
    for probe in probes(inputs, base.seed):
        kept = found.setdefault(probe.input, [])
        if len(kept) < PROBES:
            case = replace(base, probe=(probe.input, probe.index, probe.value))
            if is_seen(expected(base), expected(case)):
                kept.append(case)
    return tuple(case for kept in found.values() for case in kept)


def padded(base: Case, task: Task, target: Target) -> tuple[Case, ...]:
    """The case with padded rows, where the launcher hands such tensors to its kernels without copying them."""
    from kernelsearch.worker import intercept, standin, tensors

    seen: list[Any] = []
    with standin.standing_in(target, "cpu"):
        case = task.build(base.shape, 0, "cpu")
        inputs = [tensors.padded(v) for v in case.inputs]
        apart = {v.data_ptr() for v in inputs if hasattr(v, "data_ptr") and not v.is_contiguous()}
        try:
            with intercept.intercepted(seen.append):
                case.launch(*inputs)
        except USER_ERRORS:
            return ()
    passed = [v for launch in seen for v in launch.args.values() if hasattr(v, "data_ptr")]
    return (replace(base, padded=True),) if any(v.data_ptr() in apart for v in passed) else ()


# ---------------------------------------------------------------- sizes that only timed shapes have


def with_long_shapes(task: Task) -> Task:
    """The task with test shapes `long:0`, ... that have one timed size each and are otherwise its smallest test shape.

    Without a GPU no timed shape runs, and a kernel could do another thing there; most of what it can ask is how long
    one axis is. A function of the task alone, so that judge and interpreter agree.
    """
    if not task.test_shapes:
        return task
    return replace(task, test_shapes=(*task.test_shapes, *((f"long:{i}", p) for i, p in enumerate(_long(task)))))


def _long(task: Task) -> Iterator[Mapping[str, Any]]:
    small = task.params(smallest(task))
    tested = [params for _, params in task.test_shapes]
    made: list[dict[str, Any]] = []
    for _, params in task.shapes:
        for name, value in params.items():
            if type(value) is not int or name not in small or any(t.get(name) == value for t in tested):
                continue
            if value > max((t.get(name, 0) for t in tested), default=0) and {**small, name: value} not in made:
                made.append({**small, name: value})
    return iter(made)


def long_cases(task: Task, seed: int, launched: Callable[[str], tuple[Any, ...]], config: Mapping[str, Any]) -> list[Case]:
    """A case for each long shape that few programs of the seed can do; launched gives its launches at a shape."""
    cases = []
    for key, _ in task.test_shapes:
        if key.startswith("long:") and len(cases) < LONG_SHAPES:
            launches = launched(key)
            programs = sum(math.prod(launch.resolve_grid({**launch.args, **config})) for launch in launches)
            tensors = {id(v): v.numel() for launch in launches for v in launch.args.values() if hasattr(v, "numel")}
            if programs <= LONG_PROGRAMS and sum(tensors.values()) <= LONG_ELEMENTS:
                cases.append(Case(key, "randn", seed))
    return cases
