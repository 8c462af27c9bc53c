"""What is judged at full depth besides the regimes: moved elements, rows that lie apart, sizes that are only timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from kernelsearch.core.errors import TaskError
from kernelsearch.kernel.targets import Target
from kernelsearch.tasks.facts import smallest
from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.tasks.task import Task
from kernelsearch.worker.messages.jobs import SIZES, Case

PROBES = 4
"""Single elements that are moved, of each input: the first of those that the answer shows."""
LONG_PROGRAMS = 16
LONG_ELEMENTS = 2**19
LONG_SHAPES = 6
"""Limits of a `long` shape that runs whole, so that the interpreter can afford it, and how many there are of a kind."""
FAR_ELEMENTS = 2**21
"""Product of the sizes of a `far` shape, of which a few programs run."""
JOINT_ELEMENTS = 2**22
"""How many elements the launches of a `joint` shape may touch; those of all together twice as many."""
TYPED_REGIMES = ("mixed", "randn", "integers")
TYPED_DRAWS = 6
"""How many draws of randn: one rounding too many in a row of a thousand lies near the limits, now above, now below."""
EQUAL = 80
"""What equal sizes are in an `equal` shape: more than one tile of 64, and not a multiple."""


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
    from kernelsearch.worker.launcher import intercept, standin, tensors

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
    """The task with more test shapes, made of its timed sizes.

    Without a GPU no timed shape runs, and a kernel could do another thing there; most of what it can ask is how long
    one axis is, how many programs there are, or whether two sizes are equal. `long:0`, ... have one timed size each and
    are otherwise the smallest test shape; `far:0`, ... have one size as large as can be judged and are otherwise a test
    shape without ones; in `equal:0`, ... sizes that are equal in a timed shape are equal; `typed:0`, ... are the first test
    shape with a timed shape's dtypes and whatever else is no integer; `joint:0:0`, `joint:0:1`, ... are a
    timed shape itself and with a large size halved again and again: the first that can be judged is. A function of
    the task alone, so that judge and interpreter agree.
    """
    if not task.test_shapes:
        return task
    small = task.params(smallest(task))
    more = {"long": _long(task, small), "far": _far(task), "equal": _equal(task, small), "typed": _typed(task)}
    made = [(f"{name}:{i}", params) for name, found in more.items() for i, params in enumerate(found)]
    made += [(f"joint:{i}:{j}", params) for i, found in enumerate(_joint(task)) for j, params in enumerate(found)]
    return replace(task, test_shapes=(*task.test_shapes, *made))


def is_made(key: str) -> bool:
    """Whether `with_long_shapes` made this shape."""
    return key.partition(":")[0] in (*SIZES, "typed")


def _new_sizes(task: Task, small: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """(name, value) of the timed integers beyond every tested one."""
    for _, params in task.shapes:
        for name, value in params.items():
            if type(value) is int and name in small and value > _tested(task, name):
                yield name, value


def _tested(task: Task, name: str) -> int:
    """The largest value of a size among the task's own test shapes."""
    return max((params.get(name, 0) for key, params in task.test_shapes if not is_made(key)), default=0)


def _long(task: Task, small: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    made: list[Mapping[str, Any]] = []
    for name, value in _new_sizes(task, small):
        if {**small, name: value} not in made:
            made.append({**small, name: value})
    return made


def _far(task: Task) -> list[Mapping[str, Any]]:
    bases = [p for _, p in task.test_shapes if all(v > 1 for v in _integers(p).values()) and _integers(p)]
    if not bases:
        return []
    base = min(bases, key=lambda p: math.prod(_integers(p).values()))
    largest: dict[str, int] = {}
    for name, value in _new_sizes(task, base):
        rest = math.prod(v for n, v in _integers(base).items() if n != name)
        largest[name] = max(largest.get(name, 0), min(value, FAR_ELEMENTS // rest))
    return [{**base, name: value} for name, value in largest.items() if value > _tested(task, name)]


def _joint(task: Task) -> list[list[Mapping[str, Any]]]:
    """Each timed shape that has two new sizes at once, followed by ever smaller ones that have too.

    The largest size is halved that stays new; where none does, the largest of all.
    """
    found: list[list[Mapping[str, Any]]] = []
    for _, params in task.shapes:
        shape, made = dict(params), []
        while sum(v > _tested(task, n) for n, v in _integers(shape).items()) > 1:
            made.append(dict(shape))
            sizes = _integers(shape)
            stays = [n for n, v in sizes.items() if v // 2 > _tested(task, n)]
            shape[max(stays or sizes, key=lambda n: shape[n])] //= 2
        found += [made] if made else []
    return found


def _equal(task: Task, small: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    made: list[Mapping[str, Any]] = []
    for _, params in task.shapes:
        sizes = {n: v for n, v in _integers(params).items() if n in small and v > EQUAL}
        for value in sorted(set(sizes.values())):
            names = [n for n, v in sizes.items() if v == value]
            shape = {**small, **dict.fromkeys(names, EQUAL)}
            if len(names) > 1 and shape not in made:
                made.append(shape)
    return made


def _typed(task: Task) -> list[Mapping[str, Any]]:
    kinds = [_others(params) for _, params in task.test_shapes]
    made: list[Mapping[str, Any]] = []
    for _, params in task.shapes:
        if _others(params) not in kinds:
            kinds.append(_others(params))
            made.append({**task.test_shapes[0][1], **_others(params)})
    return made


def _others(params: Mapping[str, Any]) -> dict[str, Any]:
    return {n: v for n, v in params.items() if type(v) is not int}


def typed_cases(task: Task, seed: int, launched: Callable[[str], tuple[Any, ...]]) -> list[Case]:
    """Cases of the shapes that have a timed shape's dtypes, as far as the launcher takes them."""
    cases: list[Case] = []
    for key in (key for key, _ in task.test_shapes if key.startswith("typed:")):
        try:
            launched(key)
        except TaskError:
            continue
        cases += [Case(key, regime, seed) for regime in TYPED_REGIMES]
        cases += [Case(key, "randn", seed + 7919 * i) for i in range(1, TYPED_DRAWS)]
    return cases


def _integers(params: Mapping[str, Any]) -> dict[str, int]:
    return {n: v for n, v in params.items() if type(v) is int}


def long_cases(
    task: Task, seed: int, launched: Callable[[str], tuple[Any, ...]], config: Mapping[str, Any]
) -> list[Case]:
    """A case for each made shape that the interpreter can afford; launched gives the seed's launches at a shape.

    Where the seed has many programs, a few are sampled. Only a size for which that is so, or which was judged beside a
    size of one (where there is no other row to mistake), is also tried on a `far` shape.
    A mutated input does not show which of its elements nobody wrote: such a task is judged whole or not at all.
    """
    cases: list[Case] = []
    sampled: set[str] = set()
    joint = 0
    for key, _ in task.test_shapes:
        kind = key.partition(":")[0]
        if not is_made(key) or kind == "typed" or sum(c.shape.startswith(kind) for c in cases) >= LONG_SHAPES:
            continue
        if kind == "joint" and any(c.shape.startswith(key.rpartition(":")[0] + ":") for c in cases):
            continue
        new = {n for n, v in _integers(task.params(key)).items() if v > _tested(task, n)}
        if kind == "far" and not new <= sampled:
            continue
        try:
            launches = launched(key)
        except TaskError:  # a launcher that does not take such sizes
            continue
        programs = sum(math.prod(launch.resolve_grid({**launch.args, **config})) for launch in launches)
        tensors = {id(v): v.numel() for launch in launches for v in launch.args.values() if hasattr(v, "numel")}
        if kind == "joint":
            if sum(tensors.values()) > JOINT_ELEMENTS or joint + sum(tensors.values()) > 2 * JOINT_ELEMENTS:
                continue
            joint += sum(tensors.values())
        whole = programs <= (EQUAL if kind == "equal" else LONG_PROGRAMS) and sum(tensors.values()) <= LONG_ELEMENTS
        if whole or (kind != "equal" and not task.mutates and sum(tensors.values()) <= 4 * FAR_ELEMENTS):
            cases.append(Case(key, "randn", seed, sampled=not whole))
            sampled |= set() if whole and min(_integers(task.params(key)).values()) > 1 else new
    return cases
