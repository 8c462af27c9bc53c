"""The launches of a launcher at one shape as facts: the launcher runs, its kernels do not.

Without a GPU the inputs are on the meta device, and a trace of the largest shape needs no memory. If a launcher needs
values (`.item()`, `nonzero`), the inputs are the task's own on the CPU, and what its kernels would write is zero.
Of inputs of more than REAL_ELEMENTS elements all but a few whole numbers are zeros in memory that nothing touches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves
from triton.tools.tensor_descriptor import TensorDescriptor

from kernelsearch.core.errors import TaskError
from kernelsearch.core.plugins import describe_error
from kernelsearch.core.types import Config, DescriptorFact, LaunchFact, TensorFact, Trace
from kernelsearch.kernel.targets import Target, target_by_name
from kernelsearch.tasks.facts import label_shape
from kernelsearch.tasks.forms import seed_torch
from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.tasks.task import Case, Task
from kernelsearch.verify.bits import same_bits
from kernelsearch.verify.dispatch import DispatchMode
from kernelsearch.verify.pieces import copy_tensor
from kernelsearch.verify.widest import flatten
from kernelsearch.worker.launcher.fills import FillLog
from kernelsearch.worker.launcher.intercept import Launch, as_arg_fact, as_tensor_fact, intercept_launches
from kernelsearch.worker.launcher.standin import poison_empty, pretend_gpu
from kernelsearch.worker.launcher.tensors import find_mutated, flatten_result, has_numbers

REAL_ELEMENTS = 2**26
REPEATS = 8
"""Runs of a reference that draws random numbers."""
WHOLE_ELEMENTS = 2**22
"""Elements of a tensor of whole numbers (lengths, indices) that keeps its values."""


@dataclass(frozen=True)
class LauncherRun:
    """One run of a launcher without its kernels: its launches, the tensors that it returned, whether numbers too.

    device is that of its inputs; on `meta` no size, argument or returned number depends on values. operations are those
    of PyTorch that it runs itself, beside allocations and views.
    """

    launches: tuple[Launch, ...]
    outputs: tuple[torch.Tensor, ...]
    case: Case
    device: str
    numbers: bool
    operations: Mapping[str, int]


def make_trace(key: str, launches: Sequence[Launch], config: Config | None = None) -> Trace:
    """The launches of a run as facts under a config; descriptors have the tiles that the launcher's hooks give them."""
    for launch in launches:
        if launch.has_hooks and any(isinstance(v, TensorDescriptor) for v in launch.args.values()):
            launch.run_pre_hooks(config)
    return Trace(key, tuple(as_launch_fact(launch, config) for launch in launches))


def run_launcher(task: Task, key: str, target: Target | None = None, device: str | None = None) -> LauncherRun:
    """Runs the launcher at one shape, intercepted. Raises TaskError if it fails or launches nothing.

    device is `meta`, else the CPU, by default; `cuda` runs on the live device and needs no target.
    """
    target = target or target_by_name("h100")
    if device is not None:
        return _run(task, key, target, device)
    try:
        return _run(task, key, target, "meta")
    except TaskError:
        return _run(task, key, target, "cpu")


def describe_outputs(
    task: Task, key: str, target: Target | None = None
) -> tuple[tuple[TensorFact, ...], tuple[TensorFact, ...]]:
    """(The reference's outputs, the launcher's outputs) at one shape as facts.

    The reference really runs, on the CPU: use a small shape. An output whose size may depend on what the kernels
    compute counts as having the reference's: the judge, for whom they run, compares every size. Numbers that both
    return are no outputs: raises TaskError where they may be what the kernels computed.
    """
    target = target or target_by_name("h100")
    traced = run_launcher(task, key, target)
    with pretend_gpu(target, "cpu"):
        case = task.build(key, 0, "cpu")
        _must_name_inputs(task, case.names)
        launches: list[Launch] = []
        mutated = find_mutated(case.names, case.inputs, task.mutates)
        changed = {n: (v, v.clone()) for n, v in mutated.items()}
        try:
            with intercept_launches(launches.append):
                result = case.reference(*case.inputs)
        except USER_ERRORS as error:
            raise _make_error(task, key, "reference", error) from error
    if launches:
        site = launches[0].site
        raise TaskError(f"{task.path.name}: the reference launches {site}: it defines the answer, so use PyTorch alone")
    if traced.numbers and traced.device != "meta" and has_numbers(result):
        raise TaskError(
            f"{task.path.name}: launcher and reference both return numbers, which may be computed from values and "
            "are not judged: let both return tensors, without .item()"
        )
    if not is_own_reference(case):  # which may change it at other shapes only
        _must_change_inputs(task, changed, flatten(result))
    expected = flatten_result(result, case.names, case.inputs, task.mutates)
    wanted, given = tuple(map(as_tensor_fact, expected)), list(map(as_tensor_fact, traced.outputs))
    for i, (want, got) in enumerate(zip(wanted, given, strict=False)):
        if traced.device != "meta" and want.dtype == got.dtype and len(want.shape) == len(got.shape):
            given[i] = want
    return wanted, tuple(given)


def is_own_reference(case: Case) -> bool:
    """Whether the kernel of a case's task is its own reference."""
    return hasattr(case.reference64, "said")


def _must_name_inputs(task: Task, names: tuple[str, ...]) -> None:
    """Raises TaskError if MUTATES or DOMAIN names an input that does not exist: it would silently have no effect."""
    for word, declared in (("MUTATES", task.mutates), ("DOMAIN", task.domain)):
        for name in declared:
            if name not in names:
                inputs = ", ".join(names)
                raise TaskError(f"{task.path.name}: {word} names {name!r}, which is no input; they are {inputs}")


def must_repeat(task: Task, key: str, target: Target) -> None:
    """Raises TaskError if the reference gives other answers for the same inputs: there is nothing to compare with.

    One that draws numbers runs REPEATS times: dropout may spare a few elements twice.
    """
    with pretend_gpu(target, "cpu"):
        case, answers = task.build(key, 0, "cpu"), []
        for seed in range(REPEATS):
            seed_torch(seed)
            state = torch.get_rng_state()
            inputs = [copy_tensor(x) if isinstance(x, torch.Tensor) else x for x in case.inputs]
            answers.append(flatten_result(case.reference(*inputs), case.names, inputs, task.mutates))
            if not all(map(same_bits, answers[0], answers[-1])):
                said = "two runs on the same inputs differ: pass the mask or the random bits as an input"
                raise TaskError(f"{task.path.name}: the reference is random, {said}")
            if seed and torch.equal(state, torch.get_rng_state()):
                return


def _must_change_inputs(
    task: Task, named: dict[str, tuple[torch.Tensor, torch.Tensor]], returned: list[torch.Tensor]
) -> None:
    """Raises TaskError if the reference only returns what the launcher is said to write into its inputs."""
    own = {x.untyped_storage().data_ptr() for x, _ in named.values()}
    if not named or not returned or any(y.untyped_storage().data_ptr() in own for y in returned):
        return
    if all(same_bits(x, before) for x, before in named.values()):
        raise TaskError(
            f"{task.path.name}: MUTATES names {', '.join(named)}, which the reference leaves as it was: it defines "
            f"what an input holds afterwards too; let it write there before it returns: {next(iter(named))}.copy_(...)"
        )


def as_launch_fact(launch: Launch, config: Config | None = None) -> LaunchFact:
    """A launch as data. Names that an autotuner's configs provide are absent; heuristics are evaluated under config."""
    bound, options = launch.args, dict(launch.options)
    if launch.heuristics:
        bound, resolved = launch.resolve(config)
        options |= {n: v for n, v in resolved.items() if n in launch.heuristics}
    names = [n for n in launch.params if n in launch.args or n in launch.heuristics]
    args = {name: as_arg_fact(bound[name], f"{name!r} of {launch.site}") for name in names}
    if launch.has_hooks:
        args = {n: replace(a, hooked=True) if isinstance(a, DescriptorFact) else a for n, a in args.items()}
    grid = None if callable(launch.grid) else launch.grid
    return LaunchFact(launch.site, args, options, grid, launch.kept, launch.list_tiles(config or {}), launch.fills)


def _run(task: Task, key: str, target: Target, device: str) -> LauncherRun:
    launches: list[Launch] = []
    with nullcontext() if device == "cuda" else pretend_gpu(target, device):
        case = build_real(task, key, target) if device == "cpu" else task.build(key, 0, device)
        if case.launch is None:
            raise TaskError(f"{task.path.name} has no kernel to launch")
        with poison_empty(0.0) if device == "cpu" else nullcontext(), _OperationCount() as operations:
            result = call_launcher(
                task, key, case, lambda launch: launches.append(operations.add_fills(launch.prune_configs()))
            )
    if not launches:
        raise TaskError(f"{task.path.name}: the launcher launches no kernel at {label_shape(task, key)}")
    outputs = flatten_result(result, case.names, case.inputs, task.mutates)
    return LauncherRun(tuple(launches), tuple(outputs), case, device, has_numbers(result), operations.counts)


class _OperationCount(DispatchMode):
    """Counts operations by name that read and compute, and notes what fills memory."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._fills = FillLog()

    def add_fills(self, launch: Launch) -> Launch:
        return replace(launch, fills=self._fills.find(launch.args))

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if (
            not func.is_view
            and not name.startswith(_CHEAP)
            and any(isinstance(x, torch.Tensor) for x in tree_leaves(args))
        ):
            self.counts[name] += 1
        result = func(*args, **(kwargs or {}))
        self._fills.note(func.name(), result)
        return result


_CHEAP = ("empty", "new_", "zero", "ones", "full", "fill", "detach", "alias", "lift", "set_", "resize", "_local_scalar")


def build_real(task: Task, key: str, target: Target) -> Case:
    """The case of a shape on the CPU with the task's own inputs; large ones have the task's whole numbers alone."""
    with (
        pretend_gpu(target, "cpu"),
        _LazyZeros() if count_elements(task, key, target) > REAL_ELEMENTS else nullcontext(),
    ):
        return task.build(key, 0, "cpu")


def build_formal(task: Task, key: str, target: Target, whole: bool = False, seed: int = 0) -> Case:
    """The case of a shape whose inputs need no values: on meta, or on the CPU where the task cannot make them there; or
    with the task's whole numbers, if it makes them without its floats."""
    tries: list[tuple[str, AbstractContextManager[Any]]] = [("meta", nullcontext()), ("cpu", _LazyZeros())]
    tries[:0] = [("cpu", _LazyZeros(formal=True))] * whole
    for device, mode in tries:
        with suppress(TaskError), pretend_gpu(target, device), mode:
            return task.build(key, seed, device)
    with pretend_gpu(target, "cpu"):
        return task.build(key, seed, "cpu")


def count_elements(task: Task, key: str, target: Target) -> int:
    """The number of elements of all inputs."""
    return sum(v.numel() for v in build_formal(task, key, target).inputs if isinstance(v, torch.Tensor))


def call_launcher(task: Task, key: str, case: Case, on_launch: Callable[[Launch], Any]) -> Any:
    try:
        assert case.launch is not None
        with intercept_launches(on_launch):
            return case.launch(*case.inputs)
    except USER_ERRORS as error:
        raise _make_error(task, key, "launcher", error) from error


def takes(case: Case, on_launch: Callable[[Launch], Any] = lambda launch: None) -> bool:
    """True if the launcher takes these inputs; its kernels do not run."""
    try:
        assert case.launch is not None
        with intercept_launches(on_launch):
            case.launch(*case.inputs)
    except USER_ERRORS:
        return False
    return True


def _make_error(task: Task, key: str, part: str, error: BaseException) -> TaskError:
    return TaskError(
        f"{task.path.name}: the {part} fails at {label_shape(task, key)}: {describe_error(error, task.path)}"
    )


class _LazyZeros(TorchFunctionMode):
    """Random factories give zeros whose memory the system allocates only when it is touched, and few whole numbers;
    formal: in place of zeros meta tensors that stay."""

    def __init__(self, formal: bool = False) -> None:
        super().__init__()
        self.formal = formal

    def __torch_function__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if func not in _RANDOM:
            with torch._C.DisableTorchFunction():
                stays = self.formal and func in (torch.Tensor.to, torch.Tensor.cuda) and args[0].is_meta
            return args[0] if stays else func(*args, **kwargs)
        formal = {name: value for name, value in kwargs.items() if name != "generator"} | {"device": "meta"}
        with torch._C.DisableTorchFunction():
            model = func(*args, **formal)
            if model.is_floating_point() or model.numel() > WHOLE_ELEMENTS:
                return model if self.formal else make_lazy_zeros(model)
        return func(*args, **kwargs)


_RANDOM = frozenset({torch.randn, torch.rand, torch.randint, torch.zeros, torch.empty})


def make_lazy_zeros(model: torch.Tensor) -> torch.Tensor:
    """CPU zeros of a meta tensor's shape, strides and dtype, in untouched pages, aligned to 64 bytes."""
    with torch._C.DisableTorchFunction():
        count = 1 + sum((n - 1) * s for n, s in zip(model.shape, model.stride(), strict=True)) if model.numel() else 0
        size = count * model.dtype.itemsize
        raw = np.zeros(size + 64, dtype=np.uint8)
        start = -raw.ctypes.data % 64
        flat = torch.from_numpy(raw[start : start + size]).view(model.dtype)
        return flat.as_strided(model.shape, model.stride())
