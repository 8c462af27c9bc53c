"""Turns a live task into plain data for the driver: every shape traced, the seed's text, the space."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelsearch.core.errors import SpaceError, TaskError
from kernelsearch.core.types import DescriptorFact, LaunchFact, ShapeFact, TaskFacts, TensorFact, Trace
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import find_broken_constraint
from kernelsearch.tasks import seed as seeds
from kernelsearch.tasks import space as spaces
from kernelsearch.tasks.grids import tie_grids
from kernelsearch.tasks.task import Task

Outputs = Callable[[Task, str], tuple[tuple[TensorFact, ...], tuple[TensorFact, ...]]]
"""(The reference's outputs, the launcher's outputs) of a task at a shape's key."""


def describe(
    task: Task,
    trace: Callable[[Task, str], Trace],
    outputs: Outputs | None = None,
    others: Callable[[], Sequence[LaunchFact]] = tuple,
) -> TaskFacts:
    """The driver's knowledge of a task; others gives launches at sizes that no block divides, which grids fit too.

    trace and outputs are the worker's (`worker/launcher/trace.py`): nothing is launched or computed here. Raises
    TaskError when reference and launcher return different shapes or dtypes.
    """
    traces = {key: trace(task, key) for key in task.keys}
    sites = tuple(dict.fromkeys(launch.site for t in traces.values() for launch in t.launches))
    known = task.kernels()
    if missing := [site for site in sites if site not in known]:
        raise TaskError(f"{task.path.name}: kernel {missing[0]} is launched, but not found in the launcher's code")
    live = {site: known[site] for site in sites}
    seed = seeds.extract_seed(live)
    kernel = seed.kernel.with_changes(constraints=(*seed.kernel.constraints, *task.constraints))
    launches = [launch for t in traces.values() for launch in t.launches]
    more = others() if any(launch.grid is not None for launch in launches) else ()
    kernel = kernel.with_changes(grid=tie_grids(kernel, live, [*launches, *more]))
    numbers = spaces.find_numbers(task.space, task.config, live, kernel, traces.values())
    if outputs is not None:
        _check_outputs(task, find_smallest_shape(task), outputs)
    tied, untied = _tie_tiles(kernel, launches)
    kernel = kernel.with_changes(descriptors=tied)
    facts = TaskFacts(
        name=task.name,
        path=str(task.path),
        digest=task.digest,
        form=task.form,
        seed=kernel.render(),
        sites=sites,
        shapes=tuple(make_shape_fact(task, key) for key, _ in task.shapes),
        test_shapes=tuple(make_shape_fact(task, key) for key, _ in task.test_shapes),
        space=numbers.space,
        config=numbers.config,
        precision=task.precision,
        traces=traces,
        notes=(*task.notes, *seed.notes, *numbers.notes, *untied),
        own_configs=numbers.own_configs,
    )
    if broken := find_broken_constraint(
        kernel, {**{n: v[0] for n, v in numbers.space.items()}, **numbers.config}, facts
    ):
        raise SpaceError(
            f"{task.path.name}: the seed's own config breaks the constraint {broken!r}: change one of them"
        )
    return facts


def make_shape_fact(task: Task, key: str) -> ShapeFact:
    """One shape as data; a dtype is its name."""
    params = {name: _plain(value) for name, value in task.params(key).items()}
    return ShapeFact(key, label_shape(task, key), params, task.bytes_moved(key), task.flops(key))


def label_shape(task: Task, key: str) -> str:
    """What a person is told of a shape: its sizes."""
    return " ".join(f"{name}={_plain(value)}" for name, value in task.params(key).items()) or "get_inputs()"


def find_smallest_shape(task: Task) -> str:
    """The key of the test shape with the least product of integers; of several, the first.

    Of the task's own: get_inputs may refuse what a judge makes.
    """

    def size(params: Mapping[str, Any]) -> int:
        return math.prod(v for v in params.values() if type(v) is int and v > 0)

    own = [shape for shape in task.test_shapes if shape[0].startswith("test:")]
    return min(own or task.test_shapes or task.shapes, key=lambda shape: size(shape[1]))[0]


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value).removeprefix("torch.")


def _check_outputs(task: Task, key: str, outputs: Outputs) -> None:
    expected, given = outputs(task, key)
    where = f"{task.path.name}: at {make_shape_fact(task, key).label}"
    if len(expected) != len(given):
        raise TaskError(f"{where} the reference returns {len(expected)} tensors, the launcher {len(given)}")
    if not expected:
        raise TaskError(
            f"{where} the reference returns no tensor, so that nothing can be judged: return one, or name the inputs "
            'that the launcher writes to, such as MUTATES = ("y",)'
        )
    for i, (want, got) in enumerate(zip(expected, given, strict=True)):
        if want.shape != got.shape or want.dtype != got.dtype:
            raise TaskError(
                f"{where} output {i} is {want.dtype}{list(want.shape)} from the reference, "
                f"but {got.dtype}{list(got.shape)} from the launcher"
            )


def _tie_tiles(kernel: Kernel, launches: list[LaunchFact]) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """(The launcher's descriptors with their tiles written as constexprs, so that these can be tuned; notes).

    Its host code gives a tile as numbers. A number is a constexpr's if no other has its value, and else stays.
    """
    tied: dict[str, tuple[str, ...]] = {}
    notes: list[str] = []
    for site, name in dict.fromkeys((f.site, n) for f in launches for n, a in f.args.items() if _is_fixed(a)):
        own = [(f.args, f.args.get(name)) for f in launches if f.site == site]
        seen = [(args, fact) for args, fact in own if isinstance(fact, DescriptorFact)]
        tile = seen[0][1].block
        sizes = []
        for axis in range(len(tile)):
            values = [fact.block[axis] for _, fact in seen]
            equal = [c for c in kernel.function(site).constexprs if [args.get(c) for args, _ in seen] == values]
            sizes.append(equal or [str(v) for v in dict.fromkeys(values)])
        if any(len(choices) > 1 for choices in sizes) or name in tied:
            notes.append(
                f"the launcher gives {name} the tile {tile}, and which constexprs these are is not plain: set it in a "
                "pre_hook of triton.Config, or configs with other tiles will fail"
            )
            continue
        view = [[f"{of}({name}, {axis})" for axis in range(len(tile))] for of in ("shape", "stride")]
        tied[name] = (name, *(f"({', '.join(part)},)" for part in (*view, [choices[0] for choices in sizes])))
    return tied, notes


def _is_fixed(value: object) -> bool:
    return isinstance(value, DescriptorFact) and not (value.hooked or value.rounds or value.padding != "zero")
