"""What a package covers beyond the task's shapes: sizes and dtypes at which the task's own kernel is judged right.

Each integer of a test shape is halved, made 1 and made odd, each timed one made smaller and odd; where `get_inputs` has
a dtype, the others are tried too. A size or dtype counts only if the task's own kernel is right at all shapes that were
made for it. If it is not right at odd sizes between those that were searched, only multiples are covered there.
"""

from __future__ import annotations

import inspect
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kernelsearch.core.errors import KernelsearchError
from kernelsearch.core.types import Config, TensorFact, Verdict, Word
from kernelsearch.export.examine import TARGET, Input, describe_input, is_literal
from kernelsearch.export.exported_task import ExportedTask
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.tasks.facts import find_smallest_shape
from kernelsearch.tasks.module import read_text
from kernelsearch.tasks.task import Params, Task
from kernelsearch.worker.judging import planning
from kernelsearch.worker.launcher import trace

Judge = Callable[[Path, Config, frozenset[str]], Mapping[str, Verdict]]
"""Gives the verdict on the own kernel of a task file with a config at each test shape, by key; at those of the set by
one draw of values."""

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class _Attempt:
    """A shape judged for the sake of a group, a size's name or a dtype; inputs are None where it is refused.

    quick: by one draw of values, because it is large.
    """

    group: str | torch.dtype
    params: Params
    inputs: tuple[Any, ...] | None
    quick: bool = False


def widen(part: ExportedTask, judge: Judge) -> ExportedTask:
    """The task with the inputs that its own kernel covers beyond what was searched, or why that is not known."""
    task = part.examined.task
    tests = [params for _, params in task.test_shapes if all(map(is_literal, params.values()))]
    if part.examined.is_module or not tests:
        return part
    wanted = [*_list_sizes(tests), *_list_dtypes(task, tests)]
    attempts = [_Attempt(group, params, _make_inputs(task, params)) for group, params in wanted]
    attempts += [_Attempt(n, p, _make_inputs(task, p), True) for n, p in _list_odd(part) if (n, p) not in wanted]
    try:
        judged = _judge(part, judge, attempts)
        steps = _find_steps(part, judge, attempts, [a for a, verdict in judged if verdict.accepted])
    except KernelsearchError as error:
        return replace(part, not_widened=str(error))
    right = [a for a, verdict in judged if verdict.accepted]
    groups = {a.group: [b.inputs for b in attempts if b.group == a.group] for a in attempts}
    whole = {g: found for g, found in groups.items() if all(a in right for a in attempts if a.group == g)}
    sizes = [inputs for group, found in whole.items() if isinstance(group, str) for inputs in found]
    own = part.examined.inputs
    wider = [_extend(own, sizes)] if sizes else []
    wider += [_extend([replace(i, values=()) for i in own], f) for g, f in whole.items() if not isinstance(g, str)]
    faults = [(a, v) for a, v in judged if isinstance(a.group, str) and v.word in (Word.WRONG, Word.MEMORY, Word.RACE)]
    wrong = "".join(f"{_label(a.params)} ({v.reason})" for a, v in faults[-1:])  # odd sizes come last
    shapes = tuple(a.params for a in right if a.group in whole)
    return replace(part, wider=tuple(wider), wider_shapes=shapes, wrong=wrong, steps=steps)


def _list_sizes(tests: Sequence[Params]) -> list[tuple[str, Params]]:
    """(A size's name, a test shape with that size halved, 1 or odd), each shape once."""
    found: list[tuple[str, Params]] = []
    for params in tests:
        for name, size in params.items():
            if type(size) is int and size > 1:
                for value in (size // 2, 1, (size - 1) | 1):
                    changed = (name, {**params, name: value})
                    if changed not in found and changed[1] not in tests:
                        found.append(changed)
    return found


def _list_odd(part: ExportedTask) -> list[tuple[str, Params]]:
    """(A size's name, the smallest test shape with a timed size made smaller and odd), as the judge makes them."""
    task = planning.add_long_shapes(part.examined.task)
    small = part.examined.task.params(find_smallest_shape(part.examined.task))
    kept = [(key, p) for key, p in task.test_shapes if not planning.is_made(key) or key.startswith("odd:")]
    task = replace(task, test_shapes=tuple(kept))

    def trace_launches(key: str) -> tuple[Any, ...]:
        return tuple(trace.run_launcher(task, key, target_by_name(TARGET)).launches)

    cases = planning.make_long_cases(task, 0, trace_launches, part.seed_config)
    found = [task.params(c.shape) for c in cases]
    return [(next(n for n, v in params.items() if v != small.get(n)), params) for params in found]


def _list_dtypes(task: Task, tests: Sequence[Params]) -> list[tuple[torch.dtype, Params]]:
    """(A dtype that no shape has, a test shape with it or the same with odd sizes or those of 1).

    None without such a parameter.
    """
    defaults = {n: p.default for n, p in inspect.signature(task.module.get_inputs).parameters.items()}
    names = {n for p in (defaults, *tests) for n, v in p.items() if isinstance(v, torch.dtype)}
    if len(names) != 1:
        return []
    (name,) = names
    known = {{**defaults, **params}[name] for _, params in (*task.shapes, *task.test_shapes)}
    found = []
    for dtype in DTYPES:
        for params in tests if dtype not in known else ():
            smallest = {n: 1 if type(v) is int else v for n, v in params.items()}
            odd = {n: (v - 1) | 1 if type(v) is int and v > 1 else v for n, v in params.items()}
            found += [(dtype, {**p, name: dtype}) for p in (params, odd, smallest)]
    return [item for number, item in enumerate(found) if item not in found[:number]]


def _make_inputs(task: Task, params: Params) -> tuple[Any, ...] | None:
    """What `get_inputs` gives for a shape, as facts; None where it, the reference or the launcher refuses the shape."""
    changed = replace(task, test_shapes=(("test:0", params),))
    try:
        case = trace.run_launcher(changed, "test:0", target_by_name(TARGET)).case
        return tuple(describe_input(v, n, task.path.name) for n, v in zip(case.names, case.inputs, strict=True))
    except KernelsearchError:
        return None


def _judge(part: ExportedTask, judge: Judge, attempts: Iterable[_Attempt]) -> list[tuple[_Attempt, Verdict]]:
    """The verdicts on the task's own kernel at the attempts that the launcher takes, in a copy of the file that has
    them as TEST_SHAPES.
    """
    e, attempts = part.examined, [a for a in attempts if a.inputs is not None]
    if not attempts:
        return []
    with tempfile.TemporaryDirectory() as folder:
        for file in (e.task.path, *((e.companion,) if e.companion else ())):
            shutil.copy(file, folder)
        copy = Path(folder, e.task.path.name)
        shapes = [dict(a.params) for a in attempts]
        copy.write_text(f"{read_text(e.task.path)}\n\nimport torch\nTEST_SHAPES = {shapes!r}\n", encoding="utf-8")
        keyed = {f"test:{number}": attempt for number, attempt in enumerate(attempts)}
        verdicts = judge(copy, part.seed_config, frozenset(key for key, a in keyed.items() if a.quick))
    return [(keyed[key], verdict) for key, verdict in verdicts.items()]


# ---------------------------------------------------------------- kernels that need multiples


def _find_steps(
    part: ExportedTask, judge: Judge, attempts: Sequence[_Attempt], right: list[_Attempt]
) -> dict[tuple[int, int], tuple[int, int]]:
    """By (number of the input, axis): (size, step), where sizes above this one must be multiples of the step.

    Only for axes with a size, between those that were searched, at which the task's own kernel was not judged right.
    """
    task, steps = part.examined.task, {}
    known = [task.params(key) for key in task.keys]
    for name in dict.fromkeys(a.group for a in attempts if isinstance(a.group, str)):
        sizes = [p[name] for p in known if type(p.get(name)) is int]
        failed = [a for a in attempts if a.group == name and a not in right]
        failed = [a for a in failed if min(sizes) <= a.params[name] <= max(sizes)]
        if not failed:
            continue
        last = max(failed, key=lambda a: a.params[name])
        powers = [2**i for i in range(1, last.params[name].bit_length())]
        shapes = {k: {**last.params, name: (last.params[name] // k | 1) * k} for k in powers}
        tried = [_Attempt(name, shape, _make_inputs(task, shape), True) for shape in shapes.values()]
        accepted = [a for a, verdict in _judge(part, judge, tried) if verdict.accepted]
        wrong = [k for k, a in zip(shapes, tried, strict=True) if a not in accepted]
        multiples = [a for k, a in zip(shapes, tried, strict=True) if k > max(wrong, default=1)]
        least = min(a.params[name] for a in failed)
        fine = sizes + [a.params[name] for a in right if a.group == name]
        above, step = _find_step(fine, least, [a.params[name] for a in multiples])
        for place, times in _find_axes(part, [a for a in (*attempts, *tried) if a.group == name], name):
            steps[place] = above * times, step * times
    return steps


def _find_step(right: Sequence[int], wrong: int, multiples: Sequence[int]) -> tuple[int, int]:
    """(Size, step): every size up to this one is right, and above it the multiples of the step, a power of two.

    right are sizes that were judged right, wrong is the smallest that was not; multiples were judged right after it.
    Where the sizes above share no power of two, the step is the largest of them.
    """
    shared = math.gcd(*multiples, *(size for size in right if size > wrong))
    step = shared & -shared
    step = step if step > 1 else max(right)
    return max((size for size in right if size < wrong and size % step), default=0), step


def _find_axes(part: ExportedTask, attempts: Sequence[_Attempt], name: str) -> Iterator[tuple[tuple[int, int], int]]:
    """(Number of the input, axis) and how many times the size of this name the axis is, for those that it decides."""
    e = part.examined
    shapes = [(a.params[name], a.inputs) for a in attempts if a.inputs is not None]
    for number, params in enumerate(map(e.task.params, e.keys)):
        if type(params.get(name)) is int:
            shapes.append((params[name], tuple(i.values[number] for i in e.inputs)))
    for number, first in enumerate(shapes[0][1]):
        for axis in range(len(first.shape) if isinstance(first, TensorFact) else 0):
            times, rest = divmod(first.shape[axis], shapes[0][0])
            if not rest and all(given[number].shape[axis] == times * size for size, given in shapes):
                yield (number, axis), times


def _extend(inputs: Sequence[Input], found: Sequence[Any]) -> tuple[Input, ...]:
    """These inputs with the values of more shapes."""
    return tuple(replace(i, values=(*i.values, *(values[n] for values in found))) for n, i in enumerate(inputs))


def _label(params: Params) -> str:
    return " ".join(f"{name}={value}" for name, value in params.items())
