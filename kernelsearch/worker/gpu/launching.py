"""Launches a candidate's binaries on a GPU in place of the kernels of the user's launcher."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernelsearch.core.types import LaunchFact
from kernelsearch.kernel.launch import BoundLaunch, LaunchStep, Specialisation, bind_launch
from kernelsearch.worker.messages.jobs import CandidateJob, spec_key

if TYPE_CHECKING:
    import torch

    from kernelsearch.worker.launcher.fills import UnfilledCode


class MissingBinaries(Exception):
    """A launch needs binaries that the worker does not have."""

    def __init__(self, specs: list[tuple[Specialisation, bool]]) -> None:
        super().__init__("missing binaries")
        self.specs = specs


def launch_function(function: Any, step: LaunchStep, args: dict[str, Any]) -> None:
    """One device launch on these arguments."""
    function.launch(step.grid, [args[n] for n, _ in function.binary.params])


class TimedLaunches:
    """`Launcher.execute` with an event before and after each launch: spans are (function, start, end)."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any, Any]] = []

    def __call__(self, function: Any, step: LaunchStep, args: dict[str, Any]) -> None:
        import torch

        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        launch_function(function, step, args)
        end.record()
        self.spans.append((step.function, start, end))


@dataclass(frozen=True)
class KnownLaunch:
    """A planned launch with its loaded functions, and what the launcher's own grid said when it was planned."""

    bound: BoundLaunch
    functions: list[Any]
    grids: Sequence[tuple[Mapping[str, Any], tuple[int, ...]]] = ()

    def fits(self, launch: Any) -> bool:
        """Whether the launcher's grid still says the same: it may depend on what is no argument."""
        return all(launch.resolve_grid(meta) == grid for meta, grid in self.grids)


class Launcher:
    """The callback for an intercepted launch: binds the candidate, finds the binary, launches it.

    It keeps bindings per (site, argument facts, grid), so a timed call plans nothing. fill is the first content
    of scratch: poison (None), a value, or False for the memory's old content. Call `wipe` outside of the clock: it
    poisons the scratch of the calls since the last one, because no call may find what an earlier one left there.
    """

    def __init__(
        self,
        candidate: CandidateJob,
        binaries: Mapping[str, Any],
        execute: Callable[..., None] = launch_function,
        fill: float | bool | None = False,
    ) -> None:
        self.candidate, self.binaries, self.execute, self.fill = candidate, binaries, execute, fill
        self.known: dict[str, KnownLaunch] = {}
        self.used: list[torch.Tensor] = []
        self._unfilled: UnfilledCode | None = None

    @contextmanager
    def intercept(self) -> Iterator[None]:
        """Within the context this is what the launcher launches, and what it leaves out is left out."""
        from kernelsearch.worker.launcher.fills import UnfilledCode
        from kernelsearch.worker.launcher.intercept import intercept_launches

        self._unfilled = self._unfilled or UnfilledCode(self.candidate.fills)
        with intercept_launches(self), self._unfilled.applied():
            yield

    def __call__(self, launch: Any) -> None:
        from kernelsearch.worker.launcher import tensors, trace
        from kernelsearch.worker.launcher.arguments import resolve_arguments

        launch.run_pre_hooks(self.candidate.config)
        fact = trace.as_launch_fact(launch, self.candidate.config)
        key = repr(fact)
        known = self.known.get(key)
        if known is None or not known.fits(launch):
            known = self.known[key] = self._bind(fact, launch)
        bound = known.bound
        scratch = {n: tensors.make_scratch(b, "cuda", self.fill) for n, b in bound.plan.scratch.items()}
        self.used += scratch.values()
        for name, value in bound.plan.init.items():
            launch.args[name].fill_(value)
        for step, function in zip(bound.plan.steps, known.functions, strict=True):
            if 0 in step.grid:
                continue
            self.execute(function, step, resolve_arguments(step, launch.args, scratch))

    @property
    def functions(self) -> set[str]:
        """The functions that it has launched so far."""
        return {step.function for known in self.known.values() for step in known.bound.plan.steps}

    def wipe(self) -> None:
        from kernelsearch.worker.launcher.standin import fill_with_poison

        for buffer in self.used:
            fill_with_poison(buffer)
        self.used.clear()

    def _bind(self, fact: LaunchFact, launch: Any) -> KnownLaunch:
        c = self.candidate
        grids: list[tuple[Mapping[str, Any], tuple[int, ...]]] = []

        def grid_of(meta: Mapping[str, Any]) -> tuple[int, ...]:
            grid = launch.resolve_grid(meta)
            if fact.grid is None:
                grids.append((dict(meta), grid))
            return grid

        bound = bind_launch(c.kernel, c.config, c.seed, c.seed_config, c.sites, fact, grid_of, c.target.num_sms)
        specs = bound.specialise_steps(fact)
        missing = [(s, bound.of_seed) for s in specs if spec_key(s, bound.of_seed) not in self.binaries]
        if missing:
            raise MissingBinaries(missing)
        return KnownLaunch(bound, [_load(self.binaries[spec_key(s, bound.of_seed)]) for s in specs], grids)


_LOADED: dict[tuple[Any, ...], Any] = {}


def _load(binary: Any) -> Any:
    """The binary as a loaded function, which stays loaded for later calls."""
    from kernelsearch.worker.gpu.cuda import LoadedFunction

    key = (
        binary.cubin,
        binary.params,
        binary.maps,
        binary.num_warps,
        binary.name,
    )  # the code itself, not what was said about it
    if key not in _LOADED:
        if len(_LOADED) >= 64:
            _LOADED.clear()
        _LOADED[key] = LoadedFunction(binary)
    return _LOADED[key]


@lru_cache(maxsize=4)
def task_of(path: str) -> Any:
    """The task of a file on the live device, with the sizes that are made of its timed ones."""
    import torch

    from kernelsearch.worker.judging import planning
    from kernelsearch.worker.launcher import opening

    torch.zeros(1, device="cuda")  # makes the context that the driver API launches in
    return planning.add_long_shapes(opening.open_task(path))


_CASES: dict[tuple[str, str], Any] = {}


def case_of(task: Any, shape: str) -> Any:
    """The case of a shape with its launcher and reference but no inputs, which may be most of the memory."""
    key = (task.digest, shape)
    if key not in _CASES:
        _CASES[key] = replace(task.build(shape, 0, "cuda"), inputs=())
    return _CASES[key]
