"""The test shapes of a task whose kernels TorchInductor writes: what they do not tell apart, it may make one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelsearch.core.errors import TaskError
from kernelsearch.kernel.targets import Target
from kernelsearch.tasks.forms import count_input_elements
from kernelsearch.tasks.module import read_text
from kernelsearch.tasks.named_function import RECORDED
from kernelsearch.tasks.shrink import spread_sizes
from kernelsearch.tasks.task import Task
from kernelsearch.worker.launcher.standin import pretend_gpu


def spread_test_shapes(task: Task, target: Target) -> Task | None:
    """The task with test shapes in which no size is the same throughout; None where its own are so, or must stay.

    The numbers of a module's file are sizes of its inputs alone only where those were recorded.
    """
    if hasattr(task.module, "TEST_SHAPES") or (task.form != "native" and RECORDED not in read_text(task.path)):
        return None
    timed, tests = ([params for _, params in shapes] for shapes in (task.shapes, task.test_shapes))
    with pretend_gpu(target, "cpu"):
        spread = spread_sizes(timed, tests, lambda params: count_input_elements(task.builder, params))
    if spread == tests:
        return None
    return replace(task, test_shapes=tuple((f"test:{i}", params) for i, params in enumerate(spread)))


def write_test_shapes(task: Task, fixed: Sequence[str], spread: bool) -> str:
    """TEST_SHAPES in which the sizes that became constants stay, "" where the file gives them by itself.

    Raises TaskError if the file has its own others.
    """
    if not fixed and not spread:
        return ""
    base = dict(task.shapes[0][1])
    names = ", ".join(fixed)
    if fixed and (hasattr(task.module, "TEST_SHAPES") or len(task.shapes) > 1):
        raise TaskError(
            f"{task.path.name}: TorchInductor's kernels are right for one value of {names} only; give all shapes that "
            "value, or write a kernel"
        )
    shapes = [{**params, **{n: base[n] for n in fixed}} for _, params in task.test_shapes]
    unique = [s for i, s in enumerate(shapes) if s not in shapes[:i]]
    why = f"the kernels are right for this value of {names} only" if fixed else "no size is the same in all shapes"
    return f"\n\n# {why}\nTEST_SHAPES = {unique}\n"
