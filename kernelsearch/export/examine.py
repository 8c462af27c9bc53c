"""Looks at a live task file: what its launcher takes and returns, which kernels it launches, what its shapes are.

Runs the user's own launcher with nothing launched, on tensors without data (`worker.trace`).
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from triton.runtime.autotuner import Autotuner, Heuristics

from kernelsearch.core.errors import TaskError
from kernelsearch.core.parsing import parsed
from kernelsearch.core.types import LAUNCH_OPTIONS, LaunchFact, TaskFacts, TensorFact, Trace
from kernelsearch.export.errors import ExportError
from kernelsearch.export.launches import Site
from kernelsearch.export.layouts import layout
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import named
from kernelsearch.tasks import facts, forms
from kernelsearch.tasks.module import read_text
from kernelsearch.tasks.task import Task
from kernelsearch.worker.launcher import intercept, standin, trace


@dataclass(frozen=True)
class Input:
    """One input of the task: its name, and at each shape a tensor's facts or the scalar itself."""

    name: str
    values: tuple[Any, ...]
    default: Any = inspect.Parameter.empty

    @property
    def is_tensor(self) -> bool:
        return any(isinstance(v, TensorFact) for v in self.values)


@dataclass(frozen=True)
class Examined:
    """A task file as an export sees it.

    launcher, reference and make are names (of the functions that launch, that are right, that make inputs; in the
    KernelBench form of classes); outputs is the number of tensors that are returned, 1 for a bare tensor, or None
    where the function only changes its inputs: then returned names those that it gives back. in_tuple says whether what is
    returned is a tuple. companion is the file with the reference, if it is another one.
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
    init: tuple[Any, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        return self.task.keys

    @property
    def said(self) -> str:
        """The first paragraph of the task file's docstring, empty without one."""
        text = ast.get_docstring(parsed(text_of(self.task.path))) or ""
        return " ".join(text.split("\n\n")[0].split())

    @property
    def is_module(self) -> bool:
        return self.task.form == "kernelbench"


def examine(path: str | Path, target: str = "h100") -> Examined:
    """The task of a file. Raises TaskError for a file that is no task, ExportError for one that cannot be shipped."""
    machine = named(target)
    task = trace.open_task(path, machine)
    launches: list[intercept.Launch] = []
    cases, results = {}, {}

    def traced(task: Task, key: str) -> Trace:
        done, cases[key], results[key] = _run(task, key, machine)
        launches.extend(done)
        return Trace(key, tuple(trace.launch_fact(launch) for launch in done))

    described = facts.describe(task, traced)
    reference, companion = _reference(task)
    inputs = _inputs(task, cases)
    outputs, in_tuple, returned = _outputs(task, cases, results)
    sites = tuple(_site(name, launches, described, task.path.name) for name in described.sites)
    launcher = task.roots[0]
    if hasattr(launcher, "_opoverload"):
        raise ExportError(
            f"{task.path.name} cannot be shipped: its launcher is a torch operator of its own; "
            "name the plain function in LAUNCHER"
        )
    init = _init(task) if task.form == "kernelbench" else ()
    return Examined(
        task, described, sites, inputs, launcher.__name__, reference, outputs, in_tuple, returned, companion, init
    )


def _run(task: Task, key: str, machine: Any) -> tuple[list[intercept.Launch], Any, Any]:
    """(Launches, case, result) of the launcher at one shape: without data, else with zeros that cost no memory."""
    try:
        return _launched(task, key, machine, "meta")
    except TaskError:
        return _launched(task, key, machine, "cpu")


def _launched(task: Task, key: str, machine: Any, device: str) -> tuple[list[intercept.Launch], Any, Any]:
    launches: list[intercept.Launch] = []
    with standin.standing_in(machine, device):
        case = task.build(key, 0, device)
        result = trace._launched(task, key, case, launches.append)
    if not launches:
        raise TaskError(f"{task.path.name}: the launcher launches no kernel at {key}")
    return launches, case, result


def _reference(task: Task) -> tuple[str, Path | None]:
    if task.form == "kernelbench":
        return "Model", None
    case = task.build(facts.smallest(task), 0, "cpu")
    function = inspect.getclosurevars(case.reference).nonlocals["function"]
    module = inspect.getmodule(function)
    return function.__name__, None if module is task.module else Path(inspect.getfile(function))


# ---------------------------------------------------------------- inputs and outputs


def _inputs(task: Task, cases: Mapping[str, Any]) -> tuple[Input, ...]:
    names = {case.names for case in cases.values()}
    if len(names) != 1:
        raise ExportError(f"{task.path.name} cannot be shipped: get_inputs gives different inputs at different shapes")
    defaults = _defaults(task)
    found = []
    for position, name in enumerate(names.pop()):
        values = tuple(_value(cases[key].inputs[position], name, task) for key in task.keys)
        found.append(Input(name, values, defaults.get(name, inspect.Parameter.empty)))
    if not any(i.is_tensor for i in found):
        raise ExportError(f"{task.path.name} cannot be shipped: no input is a tensor")
    return tuple(found)


def _value(value: Any, name: str, task: Task) -> Any:
    if isinstance(value, torch.Tensor):
        fact = intercept.tensor_fact(value)
        with torch._C.DisableTorchFunction():
            return replace(fact, dtype=str(value.dtype).removeprefix("torch."))
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ExportError(
        f"{task.path.name} cannot be shipped: input {name} is a {type(value).__name__}; "
        "an operator of torch takes tensors, numbers and words"
    )


def _defaults(task: Task) -> dict[str, Any]:
    if task.form == "kernelbench":
        return {}
    found = inspect.signature(task.roots[0]).parameters
    plain = (bool, int, float, str, type(None))
    return {n: p.default for n, p in found.items() if isinstance(p.default, plain) and p.default is not p.empty}


def _outputs(
    task: Task, cases: Mapping[str, Any], results: Mapping[str, Any]
) -> tuple[int | None, bool, tuple[str, ...]]:
    """`Examined`'s outputs, in_tuple and returned."""
    kinds = set()
    for key, result in results.items():
        case, tensors = cases[key], tree_leaves(result)
        flat = isinstance(result, torch.Tensor) or (
            isinstance(result, (tuple, list)) and all(isinstance(r, torch.Tensor) for r in result)
        )
        mutated = {id(v): n for n, v in zip(case.names, case.inputs, strict=True) if n in task.mutates}
        if task.mutates and all(t is None or id(t) in mutated for t in tensors):
            given = tuple(mutated[id(t)] for t in tensors if t is not None) if flat else ()
            kinds.add((None, bool(given) and not isinstance(result, torch.Tensor), given))
        elif not flat or task.mutates or any(t is v for t in tensors for v in case.inputs):
            raise ExportError(
                f"{task.path.name} cannot be shipped: its launcher must return tensors of its own, one or a tuple, "
                "or only change the inputs that MUTATES names"
            )
        else:
            kinds.add((len(tensors), not isinstance(result, torch.Tensor), ()))
    if len(kinds) != 1:
        raise ExportError(
            f"{task.path.name} cannot be shipped: its launcher returns different things at different shapes"
        )
    return kinds.pop()


# ---------------------------------------------------------------- sites


def _site(name: str, launches: list[intercept.Launch], described: TaskFacts, file: str) -> Site:
    here = [launch for launch in launches if launch.site == name]
    for wrapper in (w for launch in here for w in launch.wrappers):
        if isinstance(wrapper, Heuristics):
            raise ExportError(
                f"{file} cannot be shipped: kernel {name} has @triton.heuristics; let the launcher pass these values"
            )
        if isinstance(wrapper, Autotuner):
            _refuse_tuner(wrapper, name, file)
    known = [f for t in described.traces.values() for f in t.launches if f.site == name]
    passed = [frozenset(f.args) for f in known]
    params = here[0].params
    defaults = {
        n: p.default for n, p in inspect.signature(here[0].fn.fn).parameters.items() if p.default is not p.empty
    }
    plain = {n: v for n, v in defaults.items() if v is None or isinstance(v, (bool, int, float, str))}
    always = frozenset.intersection(*passed)
    if any(p != always for p in passed):
        raise ExportError(
            f"{file} cannot be shipped: kernel {name} is launched with different arguments at different shapes"
        )
    return Site(name, params, always, plain, _tensor(known[0], params), all(f.grid is not None for f in known))


def _tensor(fact: LaunchFact, params: tuple[str, ...]) -> str | None:
    return next((n for n in params if isinstance(fact.args.get(n), TensorFact)), None)


def _refuse_tuner(tuner: Autotuner, name: str, file: str) -> None:
    for config in tuner.configs:
        if config.pre_hook is not None:
            raise ExportError(
                f"{file} cannot be shipped: a config of kernel {name} has a pre_hook; let the launcher do what it does"
            )
        if not all(isinstance(v, (bool, int, float)) for k, v in config.kwargs.items() if k not in LAUNCH_OPTIONS):
            raise ExportError(f"{file} cannot be shipped: a config of kernel {name} has a value that is no number")


# ---------------------------------------------------------------- shapes and modules


def params_text(params: Mapping[str, Any], file: str) -> str:
    """A shape's parameters as Python: `dict(rows=7, dtype=torch.float32)`."""
    for name, value in params.items():
        if not _is_literal(value):
            raise ExportError(f"{file} cannot be shipped: shape parameter {name} is a {type(value).__name__}")
    return f"dict({', '.join(f'{n}={v!r}' for n, v in params.items())})"


def _is_literal(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_literal, value))
    return value is None or isinstance(value, (bool, int, float, str, torch.dtype))


def layouts_of(given: Input) -> tuple[str, ...]:
    """The layouts of a tensor input over all judged shapes."""
    return tuple(sorted({layout(v.shape, v.stride) for v in given.values if isinstance(v, TensorFact)}))


def seed_kernel(examined: Examined) -> Kernel:
    return Kernel.parse(examined.facts.seed)


def text_of(path: Path) -> str:
    return read_text(path)


def _init(task: Task) -> tuple[Any, ...]:
    """get_init_inputs' values. Raises ExportError where the module cannot be made again from plain values."""
    make = getattr(task.module, "get_init_inputs", None)
    values = make() if callable(make) else []
    if isinstance(values, Mapping) or not all(_is_literal(v) for v in values):
        raise ExportError(f"{task.path.name} cannot be shipped: get_init_inputs must give a list of plain values")
    names = forms.parameters(task.module.ModelNew.__init__)[1:]
    if len(values) > len(names) and "args" not in str(inspect.signature(task.module.ModelNew.__init__)):
        raise ExportError(f"{task.path.name} cannot be shipped: ModelNew takes fewer values than get_init_inputs gives")
    return tuple(values)
