"""Loads a task file: imports it once and gives it to the first form that recognises it."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch.utils._pytree import tree_leaves

from kernelsearch.core.errors import TaskError
from kernelsearch.tasks import bare, gradient, kernelbench, native
from kernelsearch.tasks.bare import explain_missing_reference
from kernelsearch.tasks.forms import TaskSource
from kernelsearch.tasks.module import USER_ERRORS, compute_digest, import_file
from kernelsearch.tasks.shrink import choose_base, keep_by_shape, shrink_shape, spread_sizes
from kernelsearch.tasks.task import Params, Task
from kernelsearch.tasks.tried_inputs import count_input_elements

FORMS = (kernelbench, native, bare)
"""The forms, in the order in which they are tried: modules with `matches(source)` and `adapt(source, need_kernel)`."""


def load(path: str | os.PathLike[str], need_kernel: bool = True) -> Task:
    """The task of a file. Runs the file's top level, never its `__main__` block.

    need_kernel=False accepts a file with a reference and no kernel, so that TorchInductor can write the first one.
    Raises TaskError, one sentence and the lines to add, when something is missing.
    """
    path = Path(path)
    digest = compute_digest(path)
    module = import_file(path, f"kernelsearch_task_{digest}")
    source = TaskSource(path, digest, module)
    if source.get("GRADIENT_OF") is not None:
        return _tell_apart(_choose_telling(gradient.adapt(source, partial(load, need_kernel=False), need_kernel)))
    for form in FORMS:
        if form.matches(source):
            return _choose_telling(form.adapt(source, need_kernel))
    raise TaskError(explain_missing_reference(source))


MOST_RUN, LONGEST_RUN = 1 << 20, 1 << 13
"""Elements of inputs, and the largest size that can be smaller, at which a reference runs to see whether its result
tells anything: what it computes may be as large as the square of a size.
"""
FAILS, EMPTY = "the reference fails", "an input or a result is empty"
SAME = "the reference's result is not finite, or the same for all inputs"
SEEDS = 4
MOST_SAME = 16
"""Values of the same names at which a result may be the same for all inputs before no other is tried."""


def _choose_telling(task: Task) -> Task:
    """The task with other test shapes if those that were made tell nothing; with a note where no others are found."""
    if getattr(task.module, "TEST_SHAPES", None) is not None:
        return task
    find = keep_by_shape(partial(find_fault, task))
    count_elements = keep_by_shape(partial(count_input_elements, task.builder))
    faults = [find(params) for _, params in task.test_shapes]
    if not any(faults):
        return task

    same: Counter[frozenset[str]] = Counter()
    base = dict(choose_base([params for _, params in task.shapes]))

    def count(params: Params) -> int | None:
        moved = frozenset(name for name, value in params.items() if value != base[name])
        fault = SAME if same[moved] >= MOST_SAME else find(params)
        same[moved] += fault == SAME
        return None if fault else count_elements(params)

    tests, note = shrink_shape(base, count)
    if tests != [base] and all(find(params) == "" for params in tests):
        shapes = tuple((f"test:{i}", params) for i, params in enumerate(tests))
        return replace(task, test_shapes=shapes, notes=(note,) if note else ())
    fault = next(filter(None, faults))
    note = f"at all small sizes {fault}, so that a wrong kernel may be accepted: add TEST_SHAPES"
    return task if fault == FAILS else replace(task, notes=(*task.notes, note))  # who runs it says why


def _tell_apart(task: Task) -> Task:
    """The task with test shapes in which sizes that are equal in all shapes differ, as the first kernels of a forward
    get them: a package would take these for one size. Where the reference takes no others they stay.
    """
    if getattr(task.module, "TEST_SHAPES", None) is not None:
        return task
    tests = [params for _, params in task.test_shapes]

    def accept(params: Params) -> int | None:
        return count_input_elements(task.builder, params) if find_fault(task, params) == "" else None

    spread = spread_sizes([params for _, params in task.shapes], tests, accept)
    return replace(task, test_shapes=tuple((f"test:{i}", params) for i, params in enumerate(spread)))


def find_fault(task: Task, params: Params) -> str | None:
    """Why the reference's result at a shape says nothing of a kernel; empty if it does, None if the shape is large."""
    smaller = [p for _, p in task.test_shapes]
    sizes = [v for name, v in params.items() if type(v) is int and any(p[name] < v for p in smaller)]
    if max(sizes, default=0) > LONGEST_RUN or (count_input_elements(task.builder, params) or 0) > MOST_RUN:
        return None
    try:
        inputs, results = _run_reference(task, params, 0)
        if any(x.numel() == 0 for x in (*inputs, *results)):
            return EMPTY
        varied = False
        for seed in range(1, SEEDS):
            given, again = _run_reference(task, params, seed)
            if _differ(results, again):
                return ""
            varied = varied or any(not torch.equal(x, y) for x, y in zip(inputs, given, strict=True))
        return SAME if varied and results else ""
    except (TaskError, *USER_ERRORS):  # also of results that cannot be compared, as sparse ones
        return FAILS


def _run_reference(task: Task, params: Params, seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The tensors among the inputs and the results of the reference, on the CPU."""
    case = task.builder(params, seed, "cpu")
    given = [x.clone() for x in case.inputs if isinstance(x, torch.Tensor)]
    result = case.reference(*case.inputs)
    changed = [x for name, x in zip(case.names, case.inputs, strict=True) if name in task.mutates]
    return given, [x for x in tree_leaves([result, changed]) if isinstance(x, torch.Tensor)]


def _differ(results: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Whether results have other sizes, or other finite numbers at one place."""
    pairs = [
        (x.double(), y.double()) if x.is_floating_point() else (x, y) for x, y in zip(results, others, strict=True)
    ]
    return any(x.shape != y.shape or bool(((x != y) & x.isfinite() & y.isfinite()).any()) for x, y in pairs)
