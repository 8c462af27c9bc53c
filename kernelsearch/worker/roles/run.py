"""The run worker: the user's launcher with compiled binaries in place of its kernels; never candidate Python."""

from __future__ import annotations

import statistics
from functools import lru_cache
from typing import Any

from kernelsearch.compile.known import PROOF_BLOCK
from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.launch import LaunchError
from kernelsearch.worker.gpu.launching import (
    Launcher,
    MissingBinaries,
    TimedLaunches,
    case_of,
    launch_function,
    task_of,
)
from kernelsearch.worker.isolation.sandbox import WorkerLimits
from kernelsearch.worker.messages import jobs

LIMITS = WorkerLimits(descriptors=4096, file_bytes=None)

KEPT_SHARE = 0.1
"""The share of the GPU's memory that this worker may keep for itself while the judge works."""


def preload() -> None:
    """Imports the modules of every job without touching a GPU: a spare worker waits in this state."""
    import kernelsearch.measure.timing.events
    import kernelsearch.worker.launcher.intercept
    import kernelsearch.worker.launcher.standin
    import kernelsearch.worker.launcher.trace  # noqa: F401


def handle(job: Any) -> Any:
    match job:
        case jobs.RunCases() | jobs.RunSeeded() | jobs.TimeCandidate():
            return _run_candidate(job)
        case jobs.TimeBaseline():
            return _time_baseline(job)
        case jobs.Prove():
            return _prove(job)
    return jobs.JobFailure(f"the run worker does not know {type(job).__name__}", "WorkerError")


def answer_failure(job: Any, message: str, trace: str) -> Any:
    """The answer for a launcher that raised; after a CUDA error this process is of no more use."""
    if isinstance(job, jobs.TimeBaseline):
        return jobs.JobFailure(message, "WorkerError")
    if isinstance(job, jobs.Prove):
        return False
    return _reject(job, Word.CRASH, "run", message, trace=trace, poisoned="CUDA" in message)


def _reject(job: Any, word: Word, stage: str, message: str, **detail: Any) -> Any:
    verdict = Verdict(word, stage, message, detail=detail)
    if isinstance(job, jobs.TimeCandidate):
        return jobs.Timed(verdict=verdict)
    return (jobs.Ran(verdict=verdict),) if isinstance(job, jobs.RunCases) else jobs.Ran(verdict=verdict)


def _run_candidate(job: jobs.RunCases | jobs.RunSeeded | jobs.TimeCandidate) -> Any:
    from kernelsearch.worker.gpu import judged_runs
    from kernelsearch.worker.gpu.arena import GuardBroken
    from kernelsearch.worker.gpu.cuda import CudaError

    try:
        if isinstance(job, jobs.TimeCandidate):
            return _time(job)
        if isinstance(job, jobs.RunCases):
            return judged_runs.run_cases(job)
        _make_room()
        ran = judged_runs.run_seeded(job)
        _make_room()
        return ran
    except MissingBinaries as missing:
        return jobs.MissingBinary(tuple(s for s, _ in missing.specs), tuple(of_seed for _, of_seed in missing.specs))
    except LaunchError as error:
        return _reject(job, Word.STATIC, "launch", str(error))
    except GuardBroken as error:
        return _reject(job, Word.MEMORY, "run", str(error))
    except CudaError as error:
        return _reject(job, Word.CRASH, "run", str(error), poisoned=error.sticky)


def _make_room() -> None:
    """Gives back memory that only the next timing needs, if it is much: a timed shape is judged in another process."""
    import torch

    if torch.cuda.memory_reserved() > KEPT_SHARE * torch.cuda.get_device_properties(0).total_memory:
        _inputs.clear()
        torch.cuda.empty_cache()


def _time(job: jobs.TimeCandidate) -> jobs.Timed:
    import torch

    from kernelsearch.core.timed_shapes import choose_shape
    from kernelsearch.measure.timing import events as timing

    task = task_of(job.path)
    times: dict[str, tuple[float, ...]] = {}
    detail: dict[str, dict[str, Any]] = {}
    medians: dict[str, float] = {}
    abandoned = False
    launcher = Launcher(job.candidate, job.binaries)
    points = job.points or dict.fromkeys(job.shapes, ())
    while (shape := choose_shape(points, medians, job.rival_us if job.points else {})) is not None:
        inputs, call = _rotating_inputs(job.path, shape), case_of(task, shape).launch
        with launcher.intercept():
            samples = timing.take_samples(call, inputs, _flush(), job.limits_us.get(shape), launcher.wipe)
            times[shape], detail[shape] = samples.times_us, dict(samples.detail)
            if len(launcher.functions) > 1:
                launcher.execute = timed = TimedLaunches()
                parts = timing.time_parts(call, inputs, _flush(), samples.host_us, timed.spans, launcher.wipe)
                launcher.execute, detail[shape]["parts_us"] = launch_function, parts
        medians[shape] = statistics.median(samples.times_us)
        abandoned = samples.abandoned and not job.points
        if abandoned:
            break
    torch.cuda.synchronize()
    return jobs.Timed(times, detail, abandoned)


def _time_baseline(job: jobs.TimeBaseline) -> jobs.Timed:
    import torch

    from kernelsearch.measure.timing import events as timing

    task = task_of(job.path)
    call = case_of(task, job.shape).reference
    if job.baseline != "eager":
        mode = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}[job.baseline]
        torch._dynamo.reset()
        call = torch.compile(call, mode=mode, fullgraph=False, dynamic=False)
    with torch.no_grad():
        samples = timing.take_samples(call, _rotating_inputs(job.path, job.shape), _flush())
    return jobs.Timed({job.shape: samples.times_us}, {job.shape: samples.detail})


@lru_cache(maxsize=1)
def _flush() -> Any:
    from kernelsearch.measure.timing.events import Flush

    return Flush()


_inputs: dict[tuple[str, str], tuple[tuple[Any, ...], ...]] = {}


def _rotating_inputs(path: str, shape: str) -> tuple[tuple[Any, ...], ...]:
    """Two sets of inputs: no call may find the last one's data in the cache. They stay while the GPU has room."""
    import torch

    if (found := _inputs.pop((path, shape), None)) is None:
        task = task_of(path)
        found = tuple(tuple(task.build(shape, seed, "cuda").inputs) for seed in (1, 2))
    _inputs[path, shape] = found
    while len(_inputs) > 1 and torch.cuda.memory_allocated() > KEPT_SHARE * torch.cuda.mem_get_info()[1]:
        del _inputs[next(iter(_inputs))]
    return found


def _prove(job: jobs.Prove) -> bool:
    """Runs the known kernel on whole numbers, because float32 represents their sums exactly. True if it is right."""
    import torch

    from kernelsearch.worker.gpu.cuda import LoadedFunction

    blocks, n = 300, 300 * PROOF_BLOCK - 7
    x = torch.arange(n, dtype=torch.float32, device="cuda") % 1000.0
    y = torch.full((n,), float("nan"), device="cuda")
    values = {"x_ptr": x, "y_ptr": y, "n": n}
    LoadedFunction(job.binary).launch((blocks, 1, 1), [values[name] for name, _ in job.binary.params])
    right = torch.nn.functional.pad(x.cpu().double(), (0, 7)).reshape(blocks, PROOF_BLOCK)
    right = (3 * right + right.sum(1, keepdim=True)).reshape(-1)[:n]
    return bool((y.cpu().double() == right).all())
