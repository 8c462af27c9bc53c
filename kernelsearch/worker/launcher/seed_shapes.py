"""The test shapes and domains of a task whose kernels TorchInductor writes.

What no test shape tells apart, it may make one. Inputs such as probabilities are no normal numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves

from kernelsearch.core.errors import TaskError
from kernelsearch.kernel.targets import Target
from kernelsearch.propose.inductor.task_file import LIMITED
from kernelsearch.tasks.facts import find_smallest_shape
from kernelsearch.tasks.kernelbench import list_sizes
from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.tasks.shrink import spread_sizes
from kernelsearch.tasks.task import Params, Task
from kernelsearch.tasks.tried_inputs import count_input_elements
from kernelsearch.verify.dispatch import DispatchMode
from kernelsearch.verify.domains import suggest_domain
from kernelsearch.verify.regimes import make_inputs
from kernelsearch.worker.launcher.standin import pretend_gpu
from kernelsearch.worker.launcher.symbols import BecameConstant

MOST_DRAWN = 2**22
"""Elements of inputs for which the reference is run to find their domain."""


def find_varying(task: Task) -> tuple[dict[str, Any], list[str]]:
    """(A timed shape, the names of its integers that another shape of the task changes).

    It is the first one in which fewest of these are 1: PyTorch takes such a size for a constant.
    """
    timed, every = ([dict(params) for _, params in some] for some in (task.shapes, (*task.shapes, *task.test_shapes)))
    varying = [n for n, v in timed[0].items() if type(v) is int and any(o.get(n) != v for o in every)]
    return min(timed, key=lambda params: sum(params[n] == 1 for n in varying)), varying


def reconsider(
    task: Task, base: Params, sizes: Mapping[str, int], error: BecameConstant
) -> tuple[dict[str, Any], dict[str, int]]:
    """The shape to start from, and the sizes that are so many times a symbol, after an attempt with these failed.

    A size may be a multiple of a symbol, if it is one in all shapes. Where a shape has 2**31 elements the largest one
    is the start: indices of 64 bits are right for small sizes too. Else what became constant is no symbol.
    """
    every = [params for _, params in (*task.shapes, *task.test_shapes)]
    shared = {n: f for n, f in error.factors.items() if sizes.get(n) == 1 and not any(p[n] % f for p in every)}
    if shared:
        return dict(base), {**sizes, **shared}
    timed = [dict(params) for _, params in task.shapes]
    largest = max(timed, key=lambda params: count_input_elements(task.builder, params) or 0)
    if error.beyond and base != largest:
        return largest, dict(sizes)
    return dict(base), {name: factor for name, factor in sizes.items() if name not in error.names}


def spread_test_shapes(task: Task, target: Target) -> Task | None:
    """The task with test shapes in which no size is the same throughout; None where its own are so, or must stay.

    The numbers of a module's file that it is made with stay too: they may be widths of windows, or groups.
    """
    if hasattr(task.module, "TEST_SHAPES"):
        return None
    kept = list_sizes(task.module, "get_init_inputs") if task.form == "kernelbench" else {}
    timed, tests = (
        [{name: value for name, value in params.items() if name not in kept} for _, params in shapes]
        for shapes in (task.shapes, task.test_shapes)
    )
    first = task.test_shapes[0][1]

    def accept(params: Params) -> int | None:
        params = {**first, **params}
        elements = count_input_elements(task.builder, params)
        if elements is None:
            return None
        case = task.builder(params, 0, "meta")
        try:
            with pretend_gpu(target):  # with `device=x.device` it makes its tensors there
                return elements if takes_alike(case.reference, case.inputs) else None
        except USER_ERRORS:
            return None

    with pretend_gpu(target, "cpu"):
        spread = spread_sizes(timed, tests, accept)
    if spread == tests:
        return None
    both = [{**params, **sizes} for (_, params), sizes in zip(task.test_shapes, spread, strict=True)]
    return replace(task, test_shapes=tuple((f"test:{i}", params) for i, params in enumerate(both)))


def takes_alike(function: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    """Whether a function gives results of the same sizes with torch's plain attention too, of what there is.

    Raises what it raises. Without data the fast ones check no sizes, and give the query's; some versions of torch
    give no elements for a window that is larger than a volume, where with data it is an error; and none looks whether
    the memory ends before a view of it does.
    """
    found, misfits = [], _Misfits()
    for backends in ([], [SDPBackend.MATH]):
        with torch.no_grad(), misfits, sdpa_kernel(backends) if backends else nullcontext():
            found.append([x.shape for x in tree_leaves(function(*inputs)) if isinstance(x, torch.Tensor)])
    return found[0] == found[1] and not misfits.seen and all(0 not in shape for shape in found[0])


class _Misfits(DispatchMode):
    """Sees convolutions and pools that make nothing of something, and views of more memory than there is."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if "conv" in func.name() or "pool" in func.name():
            sizes = [[x.numel() for x in tree_leaves(v) if isinstance(x, torch.Tensor)] for v in (args, made)]
            self.seen |= all(sizes[0]) and not all(sizes[1])
        if func.name() == "aten::as_strided":
            last = made.storage_offset() + sum(
                (n - 1) * step for n, step in zip(made.shape, made.stride(), strict=True)
            )
            self.seen |= (last + 1) * made.element_size() > args[0].untyped_storage().nbytes()
        return made


def write_test_shapes(task: Task, fixed: Sequence[str], symbols: Mapping[str, str], spread: bool) -> str:
    """TEST_SHAPES for which the kernels are right, "" where the file gives them by itself.

    fixed are the sizes that became constants. Sizes that became one symbol are equal. Raises TaskError if the file has
    its own shapes, and others.
    """
    firsts = {symbol: name for name, symbol in reversed([*symbols.items()])}
    twins = {name: firsts[symbol] for name, symbol in symbols.items() if firsts[symbol] != name}
    apart = [n for n, first in twins.items() if any(p[n] != p[first] for _, p in (*task.shapes, *task.test_shapes))]
    if not fixed and not apart and not spread:
        return ""
    base = dict(task.shapes[0][1])
    limits = [f"one value of {', '.join(fixed)}"] * bool(fixed) + [f"{n} = {twins[n]}" for n in apart]
    if limits and (hasattr(task.module, "TEST_SHAPES") or len(task.shapes) > 1):
        raise TaskError(
            f"{task.path.name}: TorchInductor's kernels are right for {' and '.join(limits)} only; give all shapes "
            "such values, or write a kernel"
        )
    shapes = [{**params, **{n: base[n] for n in fixed}} for _, params in task.test_shapes]
    shapes = [{**params, **{n: params[twins[n]] for n in apart}} for params in shapes]
    unique = [s for i, s in enumerate(shapes) if s not in shapes[:i]]
    limits = [f"{name} = {base[name]}" for name in fixed] + limits[bool(fixed) :]
    why = f"{LIMITED} {' and '.join(limits)} only" if limits else "no size is the same in all shapes"
    return f"\n\n# {why}\nTEST_SHAPES = {unique}\n"


def write_domain(task: Task) -> str:
    """DOMAIN of inputs such as probabilities, where the reference is finite for such values only.

    "" where the file says it, where the reference is finite for normal numbers or for none, and where inputs are large.
    """
    params = task.params(find_smallest_shape(task))
    if task.domain or not 0 < (count_input_elements(task.builder, params) or 0) <= MOST_DRAWN:
        return ""
    try:
        case = task.build(find_smallest_shape(task), 0, "cpu")
        for domain in ({}, suggest_domain(case.inputs, case.names)):
            inputs = make_inputs(case.inputs, "randn", 0, names=case.names, domain=domain)
            if _is_finite(case.reference, inputs):
                return f"\n\n# the reference is finite for such values only\nDOMAIN = {domain}\n" if domain else ""
    except (TaskError, *USER_ERRORS):
        pass
    return ""


def _is_finite(function: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    try:
        with torch.no_grad():
            results = tree_leaves(function(*inputs))
    except USER_ERRORS:  # as of torch's own losses, which ask for probabilities
        return False
    return all(bool(x.isfinite().all()) for x in results if isinstance(x, torch.Tensor))
