"""The confirmed protocol on a GPU: one open shape, contestants timed block by block, and what they are judged by.

A secret tenth of the timed outputs is copied, and each distinct one is kept once. Comparisons are of bits and stay on
the device until it is done: nothing may wait inside a timed span. Contents rotate at the same pointers: before each
sample another seed's values are copied into the same input tensors, and the L2 cache is flushed.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import random
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelsearch.core.types import Verdict, Word
from kernelsearch.kernel.launch import LaunchError
from kernelsearch.measure.timing import baselines, nvml
from kernelsearch.measure.timing.events import CYCLES_PER_US, Flush, HostWait
from kernelsearch.verify.bits import as_bits, compute_fingerprint
from kernelsearch.worker.gpu import clocks
from kernelsearch.worker.gpu.cuda import CudaError
from kernelsearch.worker.gpu.launching import Launcher, MissingBinaries
from kernelsearch.worker.launcher import opening, tensors
from kernelsearch.worker.messages import confirm_jobs, ipc, jobs
from kernelsearch.worker.messages.confirm_jobs import OpenShape

WARM_UP_CALLS = 3
PILOT_SAMPLES = 7
KEPT_SHARE = 0.1
MOST_KEPT = 8
"""Kept outputs of one candidate; more differing ones than this would only cost memory."""
MOST_ON_CPU = 2
"""The same where they wait on the CPU: the first one, and one that differs from it."""
SECRET = secrets.randbits(62)


@dataclass
class LiveContestant:
    """A candidate or baseline: its call, the wipe of its scratch, the wait for it, its outputs kept for the judge.

    kept has those by the number of the contents and their fingerprint; they lie on the CPU where the GPU has no room.
    """

    call: Callable[..., Any]
    wipe: Callable[[], None]
    judged: bool
    host_us: float = 0.0
    peak_bytes: int = 0
    wait: HostWait = field(default_factory=lambda: HostWait.of_host(0.0))
    kept: dict[tuple[int, tuple[Any, ...]], list[Any]] = field(default_factory=dict)
    sampled: int = 0


@dataclass
class Stage:
    """One open shape. Every call gets the live tensors; the contents rotate through them."""

    task: Any
    job: OpenShape
    case: Any
    live: list[Any]
    contents: list[list[Any]]
    flush: Any
    monitor: Any
    contestants: dict[str, LiveContestant] = field(default_factory=dict)
    turn: int = 0

    def load(self) -> tuple[int, list[Any]]:
        """Queues the next contents into the live tensors; returns (number of the contents, arguments of a call)."""
        which = self.turn = (self.turn + 1) % len(self.contents)
        args = []
        for live, value in zip(self.live, self.contents[which], strict=True):
            if isinstance(live, torch.Tensor):
                live.copy_(value)
                args.append(live)
            else:
                args.append(value)
        return which, args


def look_at_outputs(stage: Stage, which: int, args: list[Any], result: Any) -> tuple[int, list[Any], Any]:
    """(which, copies of a timed call's outputs, True if it changed a protected input), queued behind the call."""
    names, mutates = stage.case.names, stage.task.mutates
    outputs = [o.clone() for o in tensors.flatten_result(result, names, args, mutates)]
    pairs = zip(names, stage.live, stage.contents[which], strict=True)
    moved = [differ(a, b) for n, a, b in pairs if isinstance(a, torch.Tensor) and n not in mutates and a.numel()]
    return which, outputs, torch.stack(moved).any() if moved else None


def differ(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """True if two tensors differ in any bit, as a tensor on the device; NaN equals the same NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return torch.tensor(True, device="cuda")
    return (as_bits(one) != as_bits(other)).any()


def remember(stage: Stage, contestant: LiveContestant, which: int, outputs: list[Any]) -> None:
    """Counts a sampled output, and keeps it unless a kept one has the same bits."""
    contestant.sampled += 1
    if (which and stage.job.one_set) or len(contestant.kept) >= MOST_KEPT:
        return
    mark = which, compute_fingerprint(outputs, SECRET)
    if mark in contestant.kept:
        return
    if has_room_for(outputs):
        contestant.kept[mark] = outputs
    elif len(contestant.kept) < MOST_ON_CPU:
        contestant.kept[mark] = [o.cpu() for o in outputs]


def has_room_for(outputs: list[Any]) -> bool:
    """True if the GPU has room to keep these and still work."""
    size = sum(o.untyped_storage().nbytes() for o in outputs if o.is_cuda)
    return not size or torch.cuda.mem_get_info()[0] > 8 * size


STAGE: list[Stage] = []


def prepare(job: confirm_jobs.Prepare) -> confirm_jobs.Prepared:
    """Runs PyTorch's baselines once; at a small shape without max-autotune, whose benchmarks would disturb a search."""
    begun = time.perf_counter()
    task = _open_task(job.path)
    case = task.build(job.shape, 0, "cuda")
    if job.whole:
        _compile_beside_others()
    for name in baselines.baseline_names(task):
        if name not in task.baselines and (job.whole or name not in (baselines.MAX_AUTOTUNE, baselines.SEED_AUTOTUNE)):
            # a baseline that fails here fails again, and is reported, when it enters
            with contextlib.suppress(ImportError, RuntimeError, TypeError, ValueError), torch.no_grad():
                baselines.make_baseline(name, task, case)(*case.inputs)
    torch.cuda.synchronize()
    return confirm_jobs.Prepared(time.perf_counter() - begun)


def _compile_beside_others() -> None:
    """Lets Inductor compile by two processes, and time its configs while no other process of this run does."""
    from torch._inductor import config
    from torch._inductor.runtime import benchmarking

    config.compile_threads = 2
    timer, lock = benchmarking.benchmarker, os.path.join(tempfile.gettempdir(), "benchmark.lock")

    def take_turn(*args: Any, **kwargs: Any) -> Any:
        with open(lock, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return type(timer).benchmark_gpu(timer, *args, **kwargs)

    timer.benchmark_gpu = take_turn  # type: ignore[method-assign]


def _open_task(path: str) -> Any:
    torch.zeros(1, device="cuda")  # makes the context that the driver API launches in
    torch.cuda.empty_cache()
    if "torch._dynamo" in sys.modules:  # its import takes seconds
        torch._dynamo.reset()  # each shape compiles afresh and meets no limit of recompilations
    task = opening.open_task(path)
    torch.set_float32_matmul_precision(baselines.tf32_policy_of(task.precision))
    return task


def open_shape(job: confirm_jobs.OpenShape) -> confirm_jobs.OpenedShape:
    STAGE.clear()
    task = _open_task(job.path)
    case = task.build(job.shape, job.seeds[0], "cuda")
    contents, notes = [list(case.inputs)], []
    size = tensors.count_bytes(contents[0])
    for seed in job.seeds[1:]:
        if 8 * size > torch.cuda.mem_get_info()[0]:
            notes.append(f"GPU memory is short: {len(contents)} contents rotate, not {len(job.seeds)}")
            break
        contents.append(list(task.build(job.shape, seed, "cuda").inputs))
    live = list(task.build(job.shape, job.seeds[0], "cuda").inputs)
    monitor = nvml.Monitor.open(nvml.find_bus_id())
    STAGE.append(Stage(task, job, case, live, contents, Flush(), monitor))
    peers = () if job.one_set else tuple(task.baselines)
    return confirm_jobs.OpenedShape(baselines.baseline_names(task), tuple(notes), peers)


# ---------------------------------------------------------------- contestants


def enter(job: confirm_jobs.Enter) -> confirm_jobs.EnteredContestant | jobs.MissingBinary:
    stage = STAGE[0]
    try:
        if job.candidate:
            contestant = LiveContestant(*_launcher(stage, Launcher(job.candidate, job.binaries)), judged=job.judged)
        else:
            contestant = LiveContestant(
                baselines.make_baseline(job.name, stage.task, stage.case), lambda: None, judged=False
            )
        pilot_us = _pilot(stage, contestant)
        if job.judged and not job.candidate:
            _keep_output(stage, contestant)
    except MissingBinaries as missing:
        return jobs.MissingBinary(tuple(s for s, _ in missing.specs), tuple(of_seed for _, of_seed in missing.specs))
    except LaunchError as error:
        return confirm_jobs.EnteredContestant(verdict=Verdict(Word.STATIC, "launch", str(error)))
    except CudaError as error:
        return confirm_jobs.EnteredContestant(
            verdict=Verdict(Word.CRASH, "confirm", str(error), detail={"poisoned": error.sticky})
        )
    stage.contestants[job.name] = contestant
    return confirm_jobs.EnteredContestant(pilot_us, contestant.host_us, contestant.peak_bytes)


def _launcher(stage: Stage, launcher: Launcher) -> tuple[Callable[..., Any], Callable[[], None]]:
    """(A candidate's call, the function that overwrites the scratch of that call)."""

    def call(*inputs: Any) -> Any:
        launcher.used.clear()
        with launcher.intercept():
            return stage.case.launch(*inputs)

    return call, launcher.wipe


def _pilot(stage: Stage, contestant: LiveContestant) -> float:
    """Warms the contestant up (and lets it compile), and returns its median event time in microseconds."""
    with torch.no_grad():
        for _ in range(WARM_UP_CALLS):
            contestant.call(*stage.load()[1])
        torch.cuda.synchronize()
        contestant.peak_bytes = _measure_peak(stage, contestant)
        begun = time.perf_counter()
        contestant.call(*stage.load()[1])
        contestant.host_us = (time.perf_counter() - begun) * 1e6
        contestant.wait = HostWait.of_host(contestant.host_us)
        torch.cuda.synchronize()
        spans = [_sample(stage, contestant)[0] for _ in range(PILOT_SAMPLES)]
        contestant.wait.late = 0  # it counts the samples that are kept
        torch.cuda.synchronize()
    return statistics.median(a.elapsed_time(b) * 1e3 for a, b in spans)


def _keep_output(stage: Stage, contestant: LiveContestant) -> None:
    """Keeps the outputs of one call for the judge. Raises TypeError or ValueError for results of another form."""
    which, args = stage.load()
    with torch.no_grad():
        result = contestant.call(*args)
    remember(stage, contestant, *look_at_outputs(stage, which, args, result)[:2])


def _measure_peak(stage: Stage, contestant: LiveContestant) -> int:
    """The most bytes that torch's allocator gives out during a call, beyond what is held before it."""
    args = stage.load()[1]
    contestant.wipe()  # it lets go of the scratch of the call before
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    contestant.call(*args)
    return torch.cuda.max_memory_allocated() - held


# ---------------------------------------------------------------- samples


def _sample(stage: Stage, contestant: LiveContestant, keep: bool = False) -> tuple[tuple[Any, Any], list[Any]]:
    """Queues one sample; returns (its events, the look at its outputs if they are to be kept).

    The device first waits: the host must have queued everything before the timed span begins. If it had not, the sample
    is taken again after a longer wait.
    """

    def queue(wait_us: float) -> tuple[tuple[Any, ...], bool]:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(int(wait_us * CYCLES_PER_US))
        which, args = stage.load()
        stage.flush()
        start.record()
        result = contestant.call(*args)
        end.record()
        late = start.query()
        contestant.wipe()
        return (start, end, which, args, result), late

    start, end, which, args, result = contestant.wait.take(queue)
    return (start, end), [look_at_outputs(stage, which, args, result)] if keep else []


def time_blocks(job: confirm_jobs.Blocks) -> confirm_jobs.Sampled:
    stage, secret = STAGE[0], random.SystemRandom()
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
                looks += [(job.same.get(name, name), contestant, *seen) for seen in look]
                crowded = look and not has_room_for(look[0][1])
                if crowded or len(queued) % 8 == 0:
                    torch.cuda.synchronize()  # a launch queue that is full would stall the host inside a span
                while crowded and looks:
                    changed |= take_look(stage, *looks.pop())
                del look
            torch.cuda.synchronize()
            times.append(tuple(a.elapsed_time(b) * 1e3 for a, b in queued))
            for parts in looks:
                changed |= take_look(stage, *parts)
            edges.append(stage.monitor.read(edges[-1]))
    edges[-1] = stage.monitor.read()
    late = tuple(sorted(n for n, c in stage.contestants.items() if c.wait.late))
    return confirm_jobs.Sampled(
        tuple(times), tuple(map(_edge, edges)), stage.monitor.reason, tuple(sorted(changed)), late
    )


def take_look(
    stage: Stage, name: str, contestant: LiveContestant, which: int, outputs: list[Any], moved: Any
) -> set[str]:
    """Keeps what a call has given; returns the contestant's name if it changed an input."""
    remember(stage, contestant, which, outputs)
    return {name} if moved is not None and bool(moved) else set()


def _edge(reading: Any) -> tuple[int, int, int, float, int] | None:
    if reading is None:
        return None
    return reading.sm_mhz, reading.memory_mhz, reading.temperature, reading.power_w, reading.reasons


def _reset_persisting_l2() -> None:
    """Releases the lines that a kernel asked the L2 cache to keep."""
    ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache()


# ---------------------------------------------------------------- afterwards


def hand_over_outputs(job: confirm_jobs.Outputs) -> confirm_jobs.Handed:
    stage = STAGE[0]
    ipc.release()
    if stage.job.one_set:
        del stage.contents[1:]
    torch.cuda.empty_cache()  # the judge needs a dozen times the inputs' memory
    contestant = stage.contestants[job.name]
    handed = []
    for (which, _), outputs in contestant.kept.items():
        inputs = tuple(ipc.share(v) for v in stage.contents[which])
        handed.append((stage.job.seeds[which], jobs.Ran(tuple(ipc.share(o.cuda()) for o in outputs), inputs)))
    torch.cuda.synchronize()
    return confirm_jobs.Handed(tuple(handed), contestant.sampled)


def time_by_other_clocks(job: confirm_jobs.Clocks) -> confirm_jobs.Clocked:
    stage = STAGE[0]
    contestant = stage.contestants[job.name]
    _, args = stage.load()
    with torch.no_grad():
        return confirm_jobs.Clocked(
            *clocks.measure_clocks(lambda: contestant.call(*args), stage.flush, contestant.host_us)
        )
