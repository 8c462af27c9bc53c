"""The worker of the confirmed protocol: a fresh process, one open shape, contestants timed block by block.

Like the run worker it has the user's code and compiled binaries, never candidate Python. It keeps a secret tenth of the
timed outputs for the judge. Contents rotate at the same pointers: before each sample it copies another seed's values
into the same input tensors, then it flushes the L2 cache by writing and reading.
"""

from __future__ import annotations

import contextlib
import ctypes
import random
import re
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.launch import LaunchError
from kernelsearch.worker.gpu.open_shape import LiveContestant, Stage, look_at_outputs, remember
from kernelsearch.worker.isolation.sandbox import WorkerLimits
from kernelsearch.worker.messages import confirm_jobs, jobs

LIMITS = WorkerLimits(descriptors=4096, file_bytes=None)
WARM_UP_CALLS = 3
PILOT_SAMPLES = 7
KEPT_SHARE = 0.1
CYCLES_PER_US = 2_000


def preload() -> None:
    """Does nothing: a process that touches a GPU is started, not forked."""


def handle(job: Any) -> Any:
    match job:
        case confirm_jobs.Prepare():
            return _prepare(job)
        case confirm_jobs.OpenShape():
            return _open(job)
        case confirm_jobs.Enter():
            return _enter(job)
        case confirm_jobs.Blocks():
            return _blocks(job)
        case confirm_jobs.Outputs():
            return _outputs(job)
        case confirm_jobs.Clocks():
            return _clocks(job)
        case confirm_jobs.MeasureCeilings():
            from kernelsearch.measure.timing import ceilings

            return confirm_jobs.Ceilings(ceilings.measure_ceilings())
    return jobs.JobFailure(f"the confirming worker does not know {type(job).__name__}", "WorkerError")


def failed(job: Any, message: str, trace: str) -> Any:
    """The answer for a contestant that raised; after a lost CUDA context this process is of no more use."""
    if "OutOfMemoryError" in message:
        message = f"too little GPU memory: {message.partition(': ')[2].partition('. See documentation')[0][:300]}"
    elif "CUDA error" in message or isinstance(job, (confirm_jobs.Blocks, confirm_jobs.Outputs, confirm_jobs.Clocks)):
        return jobs.JobFailure(message, confirm_jobs.CRASHED)
    if isinstance(job, confirm_jobs.Enter):
        if job.candidate is None:
            return confirm_jobs.EnteredContestant(failure=_baseline_failure(message))
        return confirm_jobs.EnteredContestant(verdict=Verdict(Word.CRASH, "confirm", message, detail={"trace": trace}))
    return jobs.JobFailure(message, "WorkerError")


def _baseline_failure(message: str) -> str:
    """A baseline's failure in words; a missing package is `not installed`."""
    kind, _, what = message.partition(": ")
    missing = re.search(r"No module named '(\w+)", what)
    return f"not installed: {missing.group(1)}" if kind == "ModuleNotFoundError" and missing else message


_STAGE: list[Stage] = []


def _prepare(job: confirm_jobs.Prepare) -> confirm_jobs.Prepared:
    """Runs every baseline once at a small shape, without max-autotune, whose benchmarks would disturb a search."""
    import torch

    from kernelsearch.measure.timing import baselines
    from kernelsearch.worker.launcher import trace

    begun = time.perf_counter()
    task = trace.open_task(job.path)
    case = task.build(job.shape, 0, "cuda")
    for name in baselines.baseline_names(task):
        if name not in (baselines.MAX_AUTOTUNE, baselines.SEED_AUTOTUNE):
            # a baseline that fails here fails again, and is reported, when it enters
            with contextlib.suppress(ImportError, RuntimeError, TypeError, ValueError), torch.no_grad():
                baselines.make_baseline(name, task, case)(*case.inputs)
    torch.cuda.synchronize()
    return confirm_jobs.Prepared(time.perf_counter() - begun)


def _open(job: confirm_jobs.OpenShape) -> confirm_jobs.OpenedShape:
    import torch

    from kernelsearch.measure.timing import baselines, nvml
    from kernelsearch.measure.timing.events import Flush
    from kernelsearch.worker.launcher import trace

    _STAGE.clear()
    torch.zeros(1, device="cuda")  # makes the context that the driver API launches in
    torch.cuda.empty_cache()
    if "torch._dynamo" in sys.modules:  # its import takes seconds
        torch._dynamo.reset()  # each shape compiles afresh and meets no limit of recompilations
    task = trace.open_task(job.path)
    torch.set_float32_matmul_precision(baselines.tf32_policy_of(task.precision))
    case = task.build(job.shape, job.seeds[0], "cuda")
    contents, notes = [list(case.inputs)], []
    size = sum(v.untyped_storage().nbytes() for v in contents[0] if isinstance(v, torch.Tensor))
    for seed in job.seeds[1:]:
        if 8 * size > torch.cuda.mem_get_info()[0]:
            notes.append(f"GPU memory is short: {len(contents)} contents rotate, not {len(job.seeds)}")
            break
        contents.append(list(task.build(job.shape, seed, "cuda").inputs))
    live = list(task.build(job.shape, job.seeds[0], "cuda").inputs)
    monitor = nvml.Monitor.open(nvml.find_bus_id())
    _STAGE.append(Stage(task, job, case, live, contents, Flush(), monitor))
    return confirm_jobs.OpenedShape(baselines.baseline_names(task), tuple(notes))


# ---------------------------------------------------------------- contestants


def _enter(job: confirm_jobs.Enter) -> confirm_jobs.EnteredContestant | jobs.MissingBinary:
    from kernelsearch.measure.timing import baselines
    from kernelsearch.worker.gpu.cuda import CudaError
    from kernelsearch.worker.gpu.launching import MissingBinaries

    stage = _STAGE[0]
    try:
        if job.candidate:
            contestant = LiveContestant(*_launcher(stage, job), judged=True)
        else:
            contestant = LiveContestant(
                baselines.make_baseline(job.name, stage.task, stage.case), lambda: None, judged=False
            )
        pilot_us = _pilot(stage, contestant)
    except MissingBinaries as missing:
        return jobs.MissingBinary(tuple(s for s, _ in missing.specs), tuple(of_seed for _, of_seed in missing.specs))
    except LaunchError as error:
        return confirm_jobs.EnteredContestant(verdict=Verdict(Word.STATIC, "launch", str(error)))
    except CudaError as error:
        return confirm_jobs.EnteredContestant(
            verdict=Verdict(Word.CRASH, "confirm", str(error), detail={"poisoned": error.sticky})
        )
    stage.contestants[job.name] = contestant
    return confirm_jobs.EnteredContestant(pilot_us, contestant.host_us)


def _launcher(stage: Stage, job: confirm_jobs.Enter) -> tuple[Callable[..., Any], Callable[[], None]]:
    """(A candidate's call, the function that overwrites the scratch of that call)."""
    from kernelsearch.worker.gpu.launching import Launcher
    from kernelsearch.worker.launcher import intercept

    launcher = Launcher(job.candidate, job.binaries)

    def call(*inputs: Any) -> Any:
        launcher.used.clear()
        with intercept.intercept_launches(launcher):
            return stage.case.launch(*inputs)

    return call, launcher.wipe


def _pilot(stage: Stage, contestant: LiveContestant) -> float:
    """Warms the contestant up (and lets it compile), and returns its median event time in microseconds."""
    import torch

    with torch.no_grad():
        for _ in range(WARM_UP_CALLS):
            contestant.call(*stage.load()[1])
        torch.cuda.synchronize()
        begun = time.perf_counter()
        contestant.call(*stage.load()[1])
        contestant.host_us = (time.perf_counter() - begun) * 1e6
        torch.cuda.synchronize()
        spans = [_sample(stage, contestant)[0] for _ in range(PILOT_SAMPLES)]
        torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) * 1e3 for a, b in spans)


# ---------------------------------------------------------------- samples


def _sample(stage: Stage, contestant: LiveContestant, keep: bool = False) -> tuple[tuple[Any, Any], list[Any]]:
    """Queues one sample; returns (its events, the look at its outputs if they are to be kept).

    The device first waits: the host must have queued everything before the timed span begins.
    """
    import torch

    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(int(min(2_000.0, 1.5 * contestant.host_us + 40.0) * CYCLES_PER_US))
    which, args = stage.load()
    stage.flush()
    start.record()
    result = contestant.call(*args)
    end.record()
    contestant.wipe()
    return (start, end), [look_at_outputs(stage, which, args, result)] if keep else []


def _blocks(job: confirm_jobs.Blocks) -> confirm_jobs.Sampled:
    import torch

    stage, secret = _STAGE[0], random.SystemRandom()
    times, edges, changed = [], [stage.monitor.read()], set()
    with torch.no_grad():
        for order in job.orders:
            _reset_persisting_l2()
            queued, looks = [], []
            for name in order:
                contestant = stage.contestants[job.same.get(name, name)]
                keep = contestant.judged and (not contestant.sampled or secret.random() < KEPT_SHARE)
                events, look = _sample(stage, contestant, keep)
                queued.append(events)
                looks += [(name, contestant, *parts) for parts in look]
                if len(queued) % 8 == 0:
                    torch.cuda.synchronize()  # a launch queue that is full would stall the host inside a span
            torch.cuda.synchronize()
            times.append(tuple(a.elapsed_time(b) * 1e3 for a, b in queued))
            for name, contestant, which, outputs, moved in looks:
                if moved is not None and bool(moved):
                    changed.add(job.same.get(name, name))
                remember(stage, contestant, which, outputs)
            edges.append(stage.monitor.read(edges[-1]))
    edges[-1] = stage.monitor.read()
    return confirm_jobs.Sampled(tuple(times), tuple(map(_edge, edges)), stage.monitor.reason, tuple(sorted(changed)))


def _edge(reading: Any) -> tuple[int, int, int, float, int] | None:
    if reading is None:
        return None
    return reading.sm_mhz, reading.memory_mhz, reading.temperature, reading.power_w, reading.reasons


def _reset_persisting_l2() -> None:
    """Releases the lines that a kernel asked the L2 cache to keep."""
    ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache()


# ---------------------------------------------------------------- afterwards


def _outputs(job: confirm_jobs.Outputs) -> confirm_jobs.Handed:
    from kernelsearch.worker.messages import ipc

    stage = _STAGE[0]
    ipc.release()
    contestant = stage.contestants[job.name]
    handed = []
    for which, outputs in contestant.kept:
        inputs = tuple(ipc.share(v) for v in stage.contents[which])
        handed.append((stage.job.seeds[which], jobs.Ran(tuple(ipc.share(o) for o in outputs), inputs)))
    import torch

    torch.cuda.synchronize()
    return confirm_jobs.Handed(tuple(handed), contestant.sampled)


def _clocks(job: confirm_jobs.Clocks) -> confirm_jobs.Clocked:
    import torch

    from kernelsearch.worker.gpu import clocks

    stage = _STAGE[0]
    contestant = stage.contestants[job.name]
    _, args = stage.load()
    with torch.no_grad():
        return confirm_jobs.Clocked(
            *clocks.measure_clocks(lambda: contestant.call(*args), stage.flush, contestant.host_us)
        )
