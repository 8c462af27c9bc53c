"""The run worker: the user's launcher with its kernels replaced by compiled binaries; never candidate Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernelsearch.launch import Bound, LaunchError, Passed, Scratch, Specialisation, Step, bind
from kernelsearch.types import Verdict, Word
from kernelsearch.worker.jobs import (
    Candidate, Device, DeviceInfo, Failure, MissingBinary, Ran, RunCases, RunSeeded, Time, TimeBaseline, Timed, spec_key,
)  # fmt: skip
from kernelsearch.worker.sandbox import Limits

if TYPE_CHECKING:
    import torch

LIMITS = Limits(descriptors=4096, file_bytes=None)


class Missing(Exception):
    """A launch needs binaries that were not sent."""

    def __init__(self, specs: list[tuple[Specialisation, bool]]) -> None:
        super().__init__("missing binaries")
        self.specs = specs


class GuardBroken(Exception):
    """A launch wrote outside its buffers."""


def preload() -> None:
    """Imports what every job needs and touches no GPU: a spare worker waits in this state."""
    import torch._dynamo

    import kernelsearch.measure.timing
    import kernelsearch.worker.intercept
    import kernelsearch.worker.standin
    import kernelsearch.worker.trace  # noqa: F401


def handle(job: Any) -> Any:
    match job:
        case RunCases():
            return _answered(job, _staged().run_cases)
        case RunSeeded():
            return _answered(job, _staged().run_seeded)
        case Time():
            return _answered(job, _time)
        case TimeBaseline():
            return _time_baseline(job)
        case DeviceInfo():
            return _device()
    return Failure(f"the run worker does not know {type(job).__name__}", "WorkerError")


def failed(job: Any, message: str, trace: str) -> Any:
    """A launcher that raised: a CUDA error among the reasons means that this process is of no more use."""
    if isinstance(job, (TimeBaseline, DeviceInfo)):
        return Failure(message, "WorkerError")
    return _rejected(job, Word.CRASH, "run", message, trace=trace, poisoned="CUDA" in message)


def _staged() -> Any:
    from kernelsearch.worker import staged

    return staged


def _rejected(job: Any, word: Word, stage: str, message: str, **detail: Any) -> Any:
    verdict = Verdict(word, stage, message, detail=detail)
    if isinstance(job, Time):
        return Timed(verdict=verdict)
    return (Ran(verdict=verdict),) if isinstance(job, RunCases) else Ran(verdict=verdict)


def _answered(job: Any, run: Callable[[Any], Any]) -> Any:
    from kernelsearch.worker.cuda import CudaError

    try:
        return run(job)
    except Missing as missing:
        return MissingBinary(tuple(s for s, _ in missing.specs), tuple(of_seed for _, of_seed in missing.specs))
    except LaunchError as error:
        return _rejected(job, Word.STATIC, "launch", str(error))
    except GuardBroken as error:
        return _rejected(job, Word.MEMORY, "run", str(error))
    except CudaError as error:
        return _rejected(job, Word.CRASH, "run", str(error), poisoned=error.sticky)


def _time(job: Time) -> Timed:
    import torch

    from kernelsearch.measure import timing
    from kernelsearch.worker import intercept

    task = task_of(job.path)
    times: dict[str, tuple[float, ...]] = {}
    host: dict[str, float] = {}
    abandoned = False
    launcher = Launcher(job.candidate, job.binaries, launched)
    for shape in job.shapes:
        inputs = _rotating_inputs(task.path, shape)
        with intercept.intercepted(launcher):
            limit_us = job.limits_us.get(shape)
            samples = timing.sample(case_of(task, shape).launch, inputs, _flush(), limit_us, launcher.wipe)
        times[shape], host[shape] = samples.times_us, samples.host_us
        abandoned = abandoned or samples.abandoned
        if samples.abandoned:
            break
    torch.cuda.synchronize()
    return Timed(times, host, abandoned)


def _time_baseline(job: TimeBaseline) -> Timed:
    import torch

    from kernelsearch.measure import timing

    task = task_of(job.path)
    call = case_of(task, job.shape).reference
    if job.baseline != "eager":
        mode = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}[job.baseline]
        torch._dynamo.reset()
        call = torch.compile(call, mode=mode, fullgraph=False, dynamic=False)
    with torch.no_grad():
        samples = timing.sample(call, _rotating_inputs(task.path, job.shape), _flush())
    return Timed({job.shape: samples.times_us}, {job.shape: samples.host_us})


def launched(function: Any, step: Step, args: dict[str, Any]) -> None:
    """One device launch on the tensors that it is given."""
    function.launch(step.grid, [args[n] for n, _ in function.binary.params])


class Launcher:
    """What an intercepted launch does: binds the candidate, finds the binary, launches it.

    Bindings are kept per (site, argument facts), so that a timed call pays for planning once. fill is what scratch
    starts with: poison (None), a value, or False for what the memory held before. `wipe`, to be called outside of the
    clock, poisons the scratch of the calls since the last one, so that no call finds what an earlier one left there.
    """

    def __init__(
        self, candidate: Candidate, binaries: Mapping[str, Any], execute: Callable[..., None],
        fill: float | None | bool = False,
    ) -> None:
        self.candidate, self.binaries, self.execute, self.fill = candidate, binaries, execute, fill
        self.bound: dict[Any, tuple[Bound, list[Any]]] = {}
        self.used: list[torch.Tensor] = []

    def __call__(self, launch: Any) -> None:
        from kernelsearch.worker import tensors, trace

        fact = trace.launch_fact(launch, self.candidate.config)
        key = repr(fact) if fact.grid is not None else None
        if key is None or key not in self.bound:
            found = self._bind(fact, launch)
            if key is not None:
                self.bound[key] = found
        else:
            found = self.bound[key]
        bound, functions = found
        launch.run_pre_hooks(self.candidate.config)
        scratch = {n: tensors.scratch(b, "cuda", self.fill) for n, b in bound.plan.scratch.items()}
        self.used += scratch.values()
        for name, value in bound.plan.init.items():
            launch.args[name].fill_(value)
        for step, function in zip(bound.plan.steps, functions, strict=True):
            args = {
                n: launch.args[a.name] if isinstance(a, Passed) else scratch[a.name] if isinstance(a, Scratch) else a
                for n, a in step.args.items()
            }
            self.execute(function, step, args)

    def wipe(self) -> None:
        from kernelsearch.worker.standin import fill_with_poison

        for buffer in self.used:
            fill_with_poison(buffer)
        self.used.clear()

    def _bind(self, fact: Any, launch: Any) -> tuple[Bound, list[Any]]:
        c = self.candidate
        bound = bind(c.kernel, c.config, c.seed, c.seed_config, c.sites, fact, launch.resolve_grid, c.target.num_sms)
        specs = bound.specialisations(fact)
        missing = [(s, bound.of_seed) for s in specs if spec_key(s, bound.of_seed) not in self.binaries]
        if missing:
            raise Missing(missing)
        return bound, [_function(self.binaries[spec_key(s, bound.of_seed)]) for s in specs]


@lru_cache(maxsize=64)
def _loaded(identity: str, name: str) -> Any:
    from kernelsearch.worker.cuda import Function

    return Function(_PENDING[identity])


_PENDING: dict[str, Any] = {}


def _function(binary: Any) -> Any:
    key = f"{binary.identity}/{binary.params!r}/{binary.num_warps}"
    _PENDING.clear()
    _PENDING[key] = binary
    return _loaded(key, binary.name)


@lru_cache(maxsize=1)
def _flush() -> Any:
    from kernelsearch.measure.timing import Flush

    return Flush()


@lru_cache(maxsize=4)
def task_of(path: str) -> Any:
    import torch

    from kernelsearch.worker import trace

    torch.zeros(1, device="cuda")  # makes the context that the driver API launches in
    return trace.open_task(path)


_CASES: dict[tuple[str, str], Any] = {}


def case_of(task: Any, shape: str) -> Any:
    """The case of a shape, for its launcher and reference; its inputs are dropped, as others are used."""
    key = (task.digest, shape)
    if key not in _CASES:
        _CASES[key] = task.build(shape, 0, "cuda")
    return _CASES[key]


@lru_cache(maxsize=3)
def _rotating_inputs(path: str, shape: str) -> tuple[tuple[Any, ...], ...]:
    """Two sets of inputs, so that no call finds the last one's data in the cache."""
    task = task_of(path)
    return tuple(tuple(task.build(shape, seed, "cuda").inputs) for seed in (1, 2))


def _device() -> Device | Failure:
    import torch
    import triton

    if not torch.cuda.is_available():
        return Failure("no CUDA device is visible", "WorkerError")
    properties = torch.cuda.get_device_properties(0)
    return Device(
        properties.name, properties.major * 10 + properties.minor, properties.multi_processor_count,
        {"torch": torch.__version__, "triton": triton.__version__, "cuda": str(torch.version.cuda)},
    )  # fmt: skip
