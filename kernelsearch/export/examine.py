"""Looks at a live task file: what its launcher takes and returns, which kernels it launches, what its shapes are.

Runs the user's own launcher with nothing launched, on tensors without data (`worker.launcher.trace`).
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from triton.runtime.autotuner import Autotuner, Heuristics

from kernelsearch.core.parsing import parse_python
from kernelsearch.core.types import LAUNCH_OPTIONS, DescriptorFact, TaskFacts, TensorFact, Trace
from kernelsearch.export import cannot_ship
from kernelsearch.export.launches import Site
from kernelsearch.kernel.targets import Target, target_by_name
from kernelsearch.tasks import facts
from kernelsearch.tasks.module import read_text
from kernelsearch.tasks.task import Case, Params, Task
from kernelsearch.worker.launcher import intercept, opening, trace

TARGET = "h100"
"""The machine whose facts stand in for a GPU while the launcher runs."""


@dataclass(frozen=True)
class Input:
    """One input of the task: its name, and for each shape a tensor's facts or the scalar itself."""

    name: str
    values: tuple[Any, ...]
    default: Any = inspect.Parameter.empty

    @property
    def is_tensor(self) -> bool:
        return any(isinstance(v, TensorFact) for v in self.values)


@dataclass(frozen=True)
class Extra:
    """A parameter that get_inputs leaves at its default, the only value that was judged.

    known: the reference takes it too, so that it can stand in where a call gives another value.
    """

    name: str
    default: Any
    by_name: bool
    known: bool


@dataclass(frozen=True)
class ExaminedTask:
    """A task file as an export sees it.

    launcher and reference are names of functions. outputs is the number of tensors that the launcher returns, or None
    where it only changes its inputs: then returned names the inputs that it gives back. in_tuple says whether the
    launcher returns a tuple. companion is the file with the reference, if that is another file; extras are the
    parameters beside the inputs.
    """

    task: Task
    facts: TaskFacts
    sites: tuple[Site, ...]
    inputs: tuple[Input, ...]
    launcher: str
    reference: str
    outputs: int | None
    in_tuple: bool
    returned: tuple[str, ...] = ()
    companion: Path | None = None
    extras: tuple[Extra, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return self.task.keys

    @property
    def summary(self) -> str:
        """What it computes: the first paragraph of the docstring of the reference, else of the task's file.

        Without either it is what the reference returns, or empty where that is more than one expression.
        """
        if self.task.forward is not None:
            return f"The gradient of `{self.reference}` of {self.task.forward.path.name}"
        tree = parse_python(read_text(self.task.path))
        defined = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == self.reference]
        text = next(filter(None, (*map(ast.get_docstring, defined), ast.get_docstring(tree))), "")
        if not text and defined and isinstance(only := defined[0].body[-1], ast.Return) and len(defined[0].body) == 1:
            text = f"`{ast.unparse(only)}`".replace("return ", "")
        return " ".join(text.split("\n\n")[0].split())

    @property
    def is_own(self) -> bool:
        """Whether the kernel is its own reference."""
        return self.reference == self.launcher

    @property
    def own_names(self) -> list[str]:
        """The names of what the user wrote: the reference, and the launcher where that was not written."""
        return [self.reference] if self.task.is_seeded or self.is_own else [self.launcher, self.reference]


def examine(path: str | Path) -> ExaminedTask:
    """The task of a file. Raises TaskError for a file that is no task, ExportError for one that cannot be shipped."""
    machine = target_by_name(TARGET)
    task = opening.open_task(path, machine)
    file = task.path.name
    if task.form == "kernelbench":
        instead = "`kernelsearch collect` takes the model that uses it, `kernelsearch.options` puts its kernels in"
        raise cannot_ship(file, f"its launcher is a module: {instead}")
    runs: dict[str, trace.LauncherRun] = {}
    results: dict[str, Any] = {}

    def trace_shape(task: Task, key: str) -> Trace:
        runs[key], results[key] = _run(task, key, machine)
        return trace.make_trace(key, runs[key].launches)

    described = facts.describe(task, trace_shape)
    function, companion = _find_reference(task)
    cases = {key: run.case for key, run in runs.items()}
    launches = [launch for run in runs.values() for launch in run.launches]
    inputs = _examine_inputs(task, cases)
    outputs, in_tuple, returned = _examine_outputs(task, cases, results)
    sites = tuple(_examine_site(name, launches, described, file) for name in described.sites)
    launcher = task.roots[0]
    if hasattr(launcher, "_opoverload"):
        raise cannot_ship(file, "its launcher is a torch operator of its own; name the plain function in LAUNCHER")
    whole = task.forward.gradient.make_reference(function) if task.forward else function
    extras, names = _find_extras(whole, launcher, len(inputs)), (launcher.__name__, function.__name__)
    return ExaminedTask(task, described, sites, inputs, *names, outputs, in_tuple, returned, companion, extras)


def describe_inputs(task: Task, key: str) -> list[tuple[str, Any]]:
    """The names and facts of the inputs at any shape, such as a drawn one (see `describe_input`)."""
    case = _run(task, key, target_by_name(TARGET))[0].case
    values = zip(case.names, case.inputs, strict=True)
    return [(name, describe_input(value, name, task.path.name)) for name, value in values]


def _run(task: Task, key: str, machine: Target) -> tuple[trace.LauncherRun, Any]:
    """The launcher at one shape, and its result as it is: without data, else with zeros that cost no memory."""
    results: list[Any] = []

    def build(params: Params, seed: int, device: str) -> Case:
        case = task.builder(params, seed, device)
        if (own := case.launch) is None:
            return case  # whoever runs it says so

        def launch(*inputs: Any) -> Any:
            results.append(own(*inputs))
            return results[-1]

        return replace(case, launch=launch)

    run = trace.run_launcher(replace(task, builder=build), key, machine)
    return run, results[-1]


def _find_reference(task: Task) -> tuple[Any, Path | None]:
    """(The reference, of a gradient that of its forward; the companion file that holds it or None)."""
    if task.forward is not None:
        return task.forward.function, Path(inspect.getfile(task.forward.function))
    case = trace.build_formal(task, facts.find_smallest_shape(task), target_by_name(TARGET))
    function = case.reference
    if not inspect.isfunction(function):
        raise cannot_ship(task.path.name, "what its kernel changes, MUTATES must name and its reference change")
    while "<locals>" in function.__qualname__ and "function" in (held := inspect.getclosurevars(function).nonlocals):
        function = held["function"]
    module = inspect.getmodule(function)
    return function, None if module is task.module else Path(inspect.getfile(function))


def _find_extras(reference: Any, launcher: Any, given: int) -> tuple[Extra, ...]:
    """The parameters with plain defaults after the first `given`: the reference's, then the launcher's own.

    One of the launcher's own may be given by position where its parameters begin with all of the reference's.
    """
    if hasattr(reference, "_opoverload"):
        return ()
    theirs, own = (list(inspect.signature(f).parameters.values()) for f in (reference, launcher))
    known = [p.name for p in theirs]
    is_longer = known == [p.name for p in own[: len(known)]]
    extras, in_place = [], True
    for p in (*theirs[given:], *(p for p in own[given:] if p.name not in known)):
        is_plain = is_literal(p.default)
        in_place = in_place and is_plain and p.kind is not p.KEYWORD_ONLY and (is_longer or p.name in known)
        if is_plain:
            extras.append(Extra(p.name, p.default, not in_place, p.name in known))
    return tuple(extras)


# ---------------------------------------------------------------- inputs and outputs


def _examine_inputs(task: Task, cases: Mapping[str, Case]) -> tuple[Input, ...]:
    file = task.path.name
    names = {case.names for case in cases.values()}
    if len(names) != 1:
        raise cannot_ship(file, "get_inputs gives different inputs at different shapes")
    if grouped := [name for name in next(iter(names)) if "[" in name]:
        raise cannot_ship(file, f"{grouped[0]} is one tensor of several: let its reference take single tensors")
    defaults = _plain_defaults(task.roots[0]) if task.form != "kernelbench" else {}
    inputs = []
    for position, name in enumerate(names.pop()):
        values = tuple(describe_input(cases[key].inputs[position], name, file) for key in task.keys)
        inputs.append(Input(name, values, defaults.get(name, inspect.Parameter.empty)))
    if not any(i.is_tensor for i in inputs):
        raise cannot_ship(file, "no input is a tensor")
    return tuple(inputs)


def describe_input(value: Any, name: str, file: str) -> Any:
    """A tensor's facts, or the scalar itself. Raises ExportError for what an operator of torch does not take."""
    if isinstance(value, torch.Tensor):
        fact = intercept.as_tensor_fact(value)
        with torch._C.DisableTorchFunction():
            return replace(fact, dtype=str(value.dtype).removeprefix("torch."))
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype)):
        return value
    raise cannot_ship(
        file, f"input {name} is a {type(value).__name__}; an operator of torch takes tensors, numbers, words and dtypes"
    )


def list_ties(inputs: Sequence[Input]) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """Pairs of (number of the input, axis) whose sizes were equal in every judged shape that has both.

    A kernel may use either for both. Sizes of one value alone are in no pair: their ranges hold them together.
    """
    sizes: dict[tuple[int, int], tuple[int | None, ...]] = {}
    ties = []
    for number, given in enumerate(inputs):
        facts = [v if isinstance(v, TensorFact) else None for v in given.values]
        for axis in range(max((len(f.shape) for f in facts if f), default=0)):
            own = tuple(f.shape[axis] if f else None for f in facts)
            for place, other in sizes.items():
                both = [(a, b) for a, b in zip(own, other, strict=True) if a is not None and b is not None]
                if both and all(a == b for a, b in both) and len({*own, *other} - {None}) > 1:
                    ties.append((place, (number, axis)))
                    if own == other:  # that one stands for both from here on
                        break
            else:
                sizes[number, axis] = own
    return tuple(ties)


def _plain_defaults(function: Any) -> dict[str, Any]:
    """The parameters' defaults that are None, numbers, truth values or texts."""
    params = inspect.signature(function).parameters
    plain = (bool, int, float, str, type(None))
    return {n: p.default for n, p in params.items() if isinstance(p.default, plain)}


def _examine_outputs(
    task: Task, cases: Mapping[str, Case], results: Mapping[str, Any]
) -> tuple[int | None, bool, tuple[str, ...]]:
    """`ExaminedTask`'s outputs, in_tuple and returned."""
    kinds: set[tuple[int | None, bool, tuple[str, ...]]] = set()
    for key, result in results.items():
        case, tensors = cases[key], tree_leaves(result)
        is_tensor = isinstance(result, torch.Tensor)
        flat = is_tensor or (isinstance(result, (tuple, list)) and all(isinstance(r, torch.Tensor) for r in result))
        mutated = {id(v): n for n, v in zip(case.names, case.inputs, strict=True) if n in task.mutates}
        if task.mutates and all(t is None or id(t) in mutated for t in tensors):
            given = tuple(mutated[id(t)] for t in tensors if t is not None) if flat else ()
            kinds.add((None, bool(given) and not is_tensor, given))
        elif not flat or any(t is v for t in tensors for v in case.inputs):
            raise cannot_ship(
                task.path.name,
                "its launcher must return tensors of its own, one or a tuple, "
                "or only inputs that it changes, which MUTATES names",
            )
        else:
            kinds.add((len(tensors), not is_tensor, ()))
    if len(kinds) != 1:
        raise cannot_ship(task.path.name, "its launcher returns different things at different shapes")
    return kinds.pop()


# ---------------------------------------------------------------- sites and modules


def _examine_site(name: str, launches: Sequence[intercept.Launch], described: TaskFacts, file: str) -> Site:
    here = [launch for launch in launches if launch.site == name]
    for wrapper in (w for launch in here for w in launch.wrappers):
        if isinstance(wrapper, Autotuner):
            _check_tuner(wrapper, name, file)
    known = [f for t in described.traces.values() for f in t.launches if f.site == name]
    passed = {frozenset(f.args) for f in known}
    if len(passed) > 1:
        raise cannot_ship(file, f"kernel {name} is launched with different arguments at different shapes")
    params, args = here[0].params, known[0].args
    descriptors = frozenset(n for n, a in args.items() if isinstance(a, DescriptorFact))
    tensors = [n for n in params if isinstance(args.get(n), TensorFact)]
    tensor = next((f"{n}.base" if n in descriptors else n for n in tensors), None)
    fixed_grid = all(f.grid is not None for f in known)
    ruled, defaults = sum(isinstance(w, Heuristics) for w in here[0].wrappers), _plain_defaults(here[0].fn.fn)
    return Site(name, params, passed.pop(), defaults, tensor, fixed_grid, ruled, here[0].meta_defaults, descriptors)


def _check_tuner(tuner: Autotuner, name: str, file: str) -> None:
    for config in tuner.configs:
        if config.pre_hook is not None:
            raise cannot_ship(file, f"a config of kernel {name} has a pre_hook; let the launcher do what it does")
        if not all(isinstance(v, (bool, int, float)) for k, v in config.kwargs.items() if k not in LAUNCH_OPTIONS):
            raise cannot_ship(file, f"a config of kernel {name} has a value that is not a number")


def is_literal(value: Any) -> bool:
    """True if a value can be written as Python: None, number, text, dtype of torch, or a list or tuple of these."""
    if isinstance(value, (tuple, list)):
        return all(map(is_literal, value))
    return value is None or isinstance(value, (bool, int, float, str, torch.dtype))
