"""Opens task files, with test shapes that the task's launcher and kernels take.

Those that are made of a timed shape have sizes that divide nothing, as far as the reference takes them
(`tasks.shrink`). A launcher may ask for multiples, and a block of a size must be a power of 2.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner

from kernelsearch.core.errors import TaskError
from kernelsearch.kernel.expressions import ExpressionError, Scope, evaluate
from kernelsearch.kernel.targets import Target, target_by_name
from kernelsearch.tasks.facts import find_smallest_shape
from kernelsearch.tasks.load import load
from kernelsearch.tasks.reach import list_decorators
from kernelsearch.tasks.task import Builder, Case, Params, Task
from kernelsearch.verify.widest import flatten
from kernelsearch.worker.launcher import trace
from kernelsearch.worker.launcher.fills import find_home
from kernelsearch.worker.launcher.intercept import intercept_launches
from kernelsearch.worker.launcher.standin import pretend_gpu

KEY = "test:0"
MOST = 2**17
"""Elements of inputs that are tried."""
MULTIPLES = (16, 32, 64, 128, 256, 512, 8, 4, 2)
"""What a size may have to be a multiple of, the likeliest first; tiles of matrix products have at least 16."""


def open_task(path: Any, target: Target | None = None, need_kernel: bool = True) -> Task:
    """Loads a task file; with a target, as if this machine had that GPU. None means the live device.

    With a target, kernels that the file's top level launches do not run.
    """
    if target is None:
        return find_mutated(fit_test_shapes(load(path, need_kernel)))
    with pretend_gpu(target, "cpu"), intercept_launches(lambda launch: None):
        task = load(path, need_kernel)
    return find_mutated(fit_test_shapes(task))


def find_mutated(task: Task) -> Task:
    """The task with MUTATES of the inputs that `restore_value` and `reset_to_zero` of its autotuners name, if any.

    Where the launcher returns such an input, it holds what the reference returns in that place.
    """
    tuners = [w for kernel in task.kernels().values() for w in list_decorators(kernel) if isinstance(w, Autotuner)]
    if hasattr(task.module, "MUTATES") or not any(tuner.restore_value or tuner.reset_to_zero for tuner in tuners):
        return task
    with suppress(TaskError):  # who runs it says why
        run = trace.run_launcher(task, find_smallest_shape(task))
        tuned = [(launch, w) for launch in run.launches for w in launch.wrappers if isinstance(w, Autotuner)]
        written = {find_home(launch.args.get(n)) for launch, w in tuned for n in (*w.restore_value, *w.reset_to_zero)}
        homes = {find_home(x): i for i, x in enumerate(run.case.inputs) if find_home(x) in written - {None}}
        mutates = tuple(run.case.names[i] for i in homes.values())
        returned = {place: homes[find_home(y)] for place, y in enumerate(run.outputs) if find_home(y) in homes}
        note = f"the autotuner restores what the launcher writes: MUTATES = {mutates}"
        builder = _write_back(task.builder, returned)
        return replace(task, mutates=mutates, builder=builder, notes=(*task.notes, note)) if mutates else task
    return task


def _write_back(builder: Builder, returned: Mapping[int, int]) -> Builder:
    """Cases whose reference writes its results to inputs: of the result at a place, to the input at another."""

    def finish(reference: Callable[..., Any], *inputs: Any) -> Any:
        result = reference(*inputs)
        for place, value in enumerate(flatten(result)):
            if place in returned and value.shape == inputs[returned[place]].shape:
                inputs[returned[place]].copy_(value)
        return result

    def build(params: Params, seed: int, device: str) -> Case:
        case = builder(params, seed, device)
        reference, wide = (partial(finish, function) for function in (case.reference, case.reference64))
        return replace(case, reference=reference, reference64=wide)

    return build


def fit_test_shapes(task: Task) -> Task:
    """The task with other sizes in those of its made test shapes that it does not take, as few others as do."""
    if hasattr(task.module, "TEST_SHAPES") or not task.roots:
        return task
    base = task.shapes[0][1]
    fitted = [(key, params if _takes(task, params) else _fit(task, params, base)) for key, params in task.test_shapes]
    once = [(key, params) for i, (key, params) in enumerate(fitted) if params not in [p for _, p in fitted[:i]]]
    changed = [key for key, params in fitted if params != task.params(key)]
    return replace(task, test_shapes=tuple(once)) if changed else task


def _fit(task: Task, params: Params, base: Params) -> Params:
    """The shape with the first change that makes it one that the task takes; itself if none does."""
    names = [name for name, value in params.items() if type(value) is int and value < base[name]]
    for name in names:
        for size in _list_sizes(base[name]):
            if _takes(task, {**params, name: size}):
                return {**params, name: size}
    for step in MULTIPLES:
        tried = {**params, **{n: next(s for s in (3 * step, step, base[n]) if s <= base[n]) for n in names}}
        if _takes(task, tried):
            return tried
    return params


def _list_sizes(timed: int) -> Iterator[int]:
    yield from (size for step in MULTIPLES for size in (3 * step, step) if size < timed)
    yield timed


def _takes(task: Task, params: Params) -> bool:
    """Whether the launcher takes a small shape, with results as large as the reference's and blocks of valid sizes."""
    tried = replace(task, test_shapes=((KEY, params),))
    with suppress(TaskError):
        if trace.count_elements(tried, KEY, target_by_name("h100")) > MOST:
            return False
        wanted, given = trace.describe_outputs(tried, KEY)
        launches = trace.run_launcher(tried, KEY).launches
        alike = [w.shape for w in wanted] == [g.shape for g in given] or len(wanted) != len(given)
        return alike and not any(map(is_refused, launches))
    return False


def is_refused(launch: Any) -> bool:
    """Whether a block's size, made of what the launcher passes, is no power of 2, or a descriptor's stride or start no
    multiple of 16 bytes: the kernel does not compile or run so.
    """
    known = {n: v for n, v in launch.args.items() if type(v) is int}
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(launch.fn.fn)))):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and type(size := _compute(node.value, known)) is int:
                known.setdefault(target.id, size)
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called == "tl.arange" and len(node.args) == 2:
            size = _compute(ast.BinOp(node.args[1], ast.Sub(), node.args[0]), known)
            if type(size) is int and size > 0 and size & (size - 1):
                return True
        if called == "tl.make_tensor_descriptor" and _is_unaligned(node, launch.args, known):
            return True
    return False


def _is_unaligned(call: ast.Call, args: Mapping[str, Any], known: dict[str, int]) -> bool:
    """Whether a descriptor's start in a tensor, or a stride of it but the last, is no multiple of 16 bytes."""
    named = dict(zip(("base", "shape", "strides"), call.args)) | {k.arg: k.value for k in call.keywords}
    base, strides = named.get("base", call), named.get("strides")
    tensor = next((args[n.id] for n in ast.walk(base) if isinstance(n, ast.Name) and n.id in args), None)
    apart = [base.right] if isinstance(base, ast.BinOp) else []
    apart += getattr(strides, "elts", [])[:-1]
    counts = (_compute(node, known) for node in apart)
    return isinstance(tensor, torch.Tensor) and any(type(n) is int and n * tensor.element_size() % 16 for n in counts)


def _compute(node: ast.expr, known: dict[str, int]) -> Any:
    with suppress(ExpressionError):
        return evaluate(ast.unparse(node), Scope(known))
    return None
