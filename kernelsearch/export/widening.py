"""What a package covers beyond the task's shapes: sizes and dtypes at which the task's own kernel is judged right.

Each integer of a test shape is halved, made 1 and made odd; where `get_inputs` has a dtype, the others are tried too. A
size or dtype counts only if the task's own kernel is right at all shapes that were made for it.
"""

from __future__ import annotations

import inspect
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kernelsearch.core.errors import KernelsearchError
from kernelsearch.core.types import Config, Verdict, Word
from kernelsearch.export.examine import TARGET, Input, describe_input, is_literal
from kernelsearch.export.exported_task import ExportedTask
from kernelsearch.kernel.targets import target_by_name
from kernelsearch.tasks.module import read_text
from kernelsearch.tasks.task import Params, Task
from kernelsearch.worker.launcher import trace

Judge = Callable[[Path, Config], Mapping[str, Verdict]]
"""Gives the verdict on the own kernel of a task file with a config at each test shape, by key."""

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class _Attempt:
    """A shape judged for the sake of a group, a size's name or a dtype; inputs are None where it is refused."""

    group: str | torch.dtype
    params: Params
    inputs: tuple[Any, ...] | None


def widen(part: ExportedTask, judge: Judge) -> ExportedTask:
    """The task with the inputs that its own kernel covers beyond what was searched, or why that is not known."""
    task = part.examined.task
    tests = [params for _, params in task.test_shapes if all(map(is_literal, params.values()))]
    if part.examined.is_module or not tests:
        return part
    wanted = [*_list_sizes(tests), *_list_dtypes(task, tests)]
    attempts = [_Attempt(group, params, _make_inputs(task, params)) for group, params in wanted]
    taken = [a for a in attempts if a.inputs is not None]
    try:
        judged = _judge(part, judge, taken) if taken else []
    except KernelsearchError as error:
        return replace(part, not_widened=str(error))
    right = [a for a, verdict in judged if verdict.accepted]
    groups = {a.group: [b.inputs for b in attempts if b.group == a.group] for a in attempts}
    whole = {g: found for g, found in groups.items() if all(a in right for a in attempts if a.group == g)}
    sizes = [inputs for group, found in whole.items() if isinstance(group, str) for inputs in found]
    own = part.examined.inputs
    wider = [_extend(own, sizes)] if sizes else []
    wider += [_extend([replace(i, values=()) for i in own], f) for g, f in whole.items() if not isinstance(g, str)]
    faults = [(a, v) for a, v in judged if isinstance(a.group, str) and v.word in (Word.WRONG, Word.MEMORY)]
    wrong = "".join(f"{_label(a.params)} ({v.reason})" for a, v in faults[-1:])  # odd sizes come last
    return replace(part, wider=tuple(wider), wrong=wrong)


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


def _judge(part: ExportedTask, judge: Judge, attempts: Sequence[_Attempt]) -> list[tuple[_Attempt, Verdict]]:
    """The verdicts on the task's own kernel at these attempts, in a copy of the file that has them as TEST_SHAPES."""
    e = part.examined
    with tempfile.TemporaryDirectory() as folder:
        for file in (e.task.path, *((e.companion,) if e.companion else ())):
            shutil.copy(file, folder)
        copy = Path(folder, e.task.path.name)
        shapes = [dict(a.params) for a in attempts]
        copy.write_text(f"{read_text(e.task.path)}\n\nimport torch\nTEST_SHAPES = {shapes!r}\n", encoding="utf-8")
        verdicts = judge(copy, part.seed_config)
    keyed = {f"test:{number}": attempt for number, attempt in enumerate(attempts)}
    return [(keyed[key], verdict) for key, verdict in verdicts.items()]


def _extend(inputs: Sequence[Input], found: Sequence[Any]) -> tuple[Input, ...]:
    """These inputs with the values of more shapes."""
    return tuple(replace(i, values=(*i.values, *(values[n] for values in found))) for n, i in enumerate(inputs))


def _label(params: Params) -> str:
    return " ".join(f"{name}={value}" for name, value in params.items())
