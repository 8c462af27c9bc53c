"""The interpreter worker: candidate source under TRITON_INTERPRET, for judging and for counting without a GPU.

It is always forked from a nursery, which imports this module before any candidate comes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from triton.runtime.errors import InterpreterError

from kernelsearch.compile.build import as_live_constant, find_line, load_functions
from kernelsearch.core.types import Verdict, Word, content_digest
from kernelsearch.evaluate.faults import EndlessLoop, OutOfBounds, Race
from kernelsearch.kernel.launch import LaunchError
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.static_model.counts import LaunchCounts
from kernelsearch.tasks.facts import find_smallest_shape
from kernelsearch.worker.interpreter import logic
from kernelsearch.worker.interpreter.addresses import Buffers
from kernelsearch.worker.interpreter.counting import Tally, count_into, run_sampled
from kernelsearch.worker.interpreter.input_values import InputValues, draw_inputs
from kernelsearch.worker.interpreter.offsets import OffsetWraps, check_loaded, check_offsets, follow_offsets
from kernelsearch.worker.interpreter.programs import Program, order_programs, run_programs, watch
from kernelsearch.worker.interpreter.races import AccessLog
from kernelsearch.worker.interpreter.sampling import GridSample
from kernelsearch.worker.isolation.sandbox import WorkerLimits
from kernelsearch.worker.judging.candidate_launch import (
    CandidateLaunch,
    describe_shape,
    find_inputs,
    name_line,
    open_case,
    open_task,
    run_launcher,
)
from kernelsearch.worker.launcher import standin, tensors, trace
from kernelsearch.worker.launcher.arguments import tensors_in
from kernelsearch.worker.launcher.twin import TwinMode, widen_constant, widen_source
from kernelsearch.worker.messages.jobs import UNDEFINED, CandidateJob, Interpret, Profile, Profiled, Ran

SHIFTS = {"shuffled": 16}
"""By the order of a run, the bytes by which buffers begin after a multiple of 512; binaries may rely on 16 only."""

NO_INTERPRETER = re.compile(r"([\w ]+) not supported in interpreter mode")
"""What Triton's interpreter says of what only a GPU runs."""

FRESH_ELEMENTS = 2**24
"""Elements of memory that nobody has used before: it holds zeros, and filling it takes longer than counting."""
MADE_ELEMENTS = 2**29
"""Elements of inputs that are made for the whole numbers among them."""

LIMITS = WorkerLimits(cpu_s=600)  # a backstop: the driver's wall clock ends a job long before


def preload() -> None:
    """Prepares what every job needs, once, before forking; TRITON_INTERPRET is in the environment."""
    from numpy import random  # noqa: F401
    from torch.fx.experimental import symbolic_shapes  # noqa: F401  (half a second, at the first meta tensor)
    from triton.compiler import code_generator  # noqa: F401
    from triton.experimental import gluon  # noqa: F401  (Triton's interpreter imports it at the first kernel)

    torch.set_num_threads(1)


def handle(job: Interpret | Profile) -> Any:
    return _interpret(job) if isinstance(job, Interpret) else _profile(job)


def answer_failure(job: Any, message: str, trace: str) -> Any:
    verdict = Verdict(Word.CRASH, "run", message, detail={"trace": trace})
    return Profiled(verdict=verdict) if isinstance(job, Profile) else (Ran(verdict=verdict),)


def _interpret(job: Interpret) -> tuple[Ran, ...]:
    runs: list[Ran] = []
    logic.REACHED.clear()
    logic.RAN.clear()
    blocks: tuple[frozenset[Any], ...] = ()
    for number in range(len(job.shapes)):
        ran = _run_case(job, number, job.sampled[number] if job.sampled else 0)
        seen = frozenset(logic.REACHED), frozenset(logic.RAN)
        blocks = blocks if blocks == seen else seen  # a message has the same objects once
        runs.append(replace(ran, reached=blocks[0], ran=blocks[1]))
        if runs[-1].verdict is not None:
            break
    return tuple(runs)


def _run_case(job: Interpret, number: int, seed: int) -> Ran:
    """One launcher call. With a seed few programs run; if those need the others, all run, or there are no outputs.

    Only whole runs are suspected: in others the programs that did not run have written nothing.
    """
    shape, twin = job.shapes[number], job.twins[number]
    values = [tensors.unpack(value) for value in job.inputs[number]]
    protected = find_inputs(job.path, shape, job.candidate.target, values)
    logs: list[AccessLog] = []
    sample = GridSample(seed) if seed else None

    def execute(launch: CandidateLaunch) -> None:
        step, args = launch.step, launch.args
        function, buffered = _function(launch, "twin" if twin else "plain"), tensors_in(args)
        buffers = Buffers(buffered, SHIFTS.get(job.order, 0))
        constexprs = {n: as_live_constant(widen_constant(v) if twin else v) for n, v in step.constexprs.items()}
        log = AccessLog(buffered, launch.fresh, protected)
        logs.append(log)

        def run(programs: list[Program]) -> None:
            with watch(buffers, log, undefined=job.order == UNDEFINED):
                run_programs(function, {**args, **constexprs}, frozenset(constexprs), step.grid, programs, buffers)

        if sample is None:
            run(order_programs(step.grid, job.order))
        else:
            sample.run_launch(log, step.grid, bool(step.scratch), buffered, run)
        log.suspect = log.suspect or buffers.suspect

    with TwinMode() if twin else nullcontext():
        outputs, verdict = _launch(job.path, job.candidate, shape, values, execute, job.num_sms)
    if verdict is not None and verdict.word is Word.TIMEOUT and sample is not None:
        return Ran()  # a program waits for one that is not among the few
    if verdict is not None:
        return Ran(verdict=verdict)
    if any(tensors.has_gap_changed(v) for v in values):
        reason = "wrote between the rows of an input whose rows lie apart"
        return Ran(
            verdict=Verdict(Word.MEMORY, "run", reason, detail=describe_shape(job.path, shape, job.candidate.target))
        )
    if sample is not None and not sample.can_be_judged:
        return _run_case(job, number, 0) if sample.can_run_whole else Ran(suspect=sample.suspect)
    packed = tuple(tensors.pack(o) for o in outputs), tuple(tensors.pack(v) for v in values)
    if sample is None or not sample.left_out:
        return Ran(*packed, suspect=next((log.suspect for log in logs if log.suspect), ""))
    covers = min((sample.cover_of(o.untyped_storage().data_ptr()) for o in outputs), default=1.0)
    written = tuple(tensors.pack(sample.mask_of(o)) for o in outputs)
    return Ran(*packed, suspect=sample.suspect, covers=covers, written=written)


def _profile(job: Profile) -> Profiled:
    counts: dict[str, tuple[LaunchCounts, ...]] = {}
    for shape in job.shapes:
        case = open_case(job.path, shape, job.candidate.target)
        if _reads_values(job.path, shape, job.candidate.target):
            task = open_task(job.path, job.candidate.target)
            inputs = list(trace.run_launcher(task, shape, job.candidate.target).case.inputs)
        else:
            whole = _whole_numbers(job.path, shape, job.candidate.target)
            zeros = [trace.make_lazy_zeros(v) if isinstance(v, torch.Tensor) else v for v in case.inputs]
            inputs = [whole[n].clone() if n in whole else v for n, v in zip(case.names, zeros, strict=True)]
        drawn = _draw_inputs(job, shape, dict(zip(case.names, inputs, strict=True)))
        counts[shape], verdict = _count_shape(job, shape, inputs, drawn)
        if verdict is not None:
            return Profiled(verdict=verdict)
    return Profiled(counts)


def _count_shape(
    job: Profile, shape: str, inputs: list[Any], drawn: InputValues
) -> tuple[tuple[LaunchCounts, ...], Verdict | None]:
    counts: list[LaunchCounts] = []

    def execute(launch: CandidateLaunch) -> None:
        step, args, function = launch.step, launch.args, _function(launch, "counted")
        if 0 in step.grid:
            return
        tally = Tally(tensors_in(args), drawn)
        constexprs = {n: as_live_constant(v) for n, v in step.constexprs.items()}
        args = {**args, **constexprs}

        def check(program: Program, where: str, instead: str | None = None) -> None:
            other = Tally(tensors_in(args), copy(drawn))
            other.drawn.rng = np.random.default_rng(0)
            with count_into(other), follow_offsets(instead or where, None if instead is None else other.buffers):
                run_programs(function, args, frozenset(constexprs), step.grid, [program], other.buffers, other.patch)

        def run(programs: list[Program]) -> None:
            run_programs(function, args, frozenset(constexprs), step.grid, programs, tally.buffers, tally.patch)

        check_loaded(step.grid, tensors_in(args), check)
        check_offsets(step.grid, check)
        with count_into(tally):
            counted = run_sampled(tally, step.grid, run)
        counts.append(tally.to_counts(step.function, math.prod(step.grid), counted))

    zeros = 0.0 if _reads_values(job.path, shape, job.candidate.target) else None  # the launcher may read a size there
    _, verdict = _launch(job.path, job.candidate, shape, inputs, execute, poison=zeros, most=FRESH_ELEMENTS)
    return tuple(counts), verdict


def _draw_inputs(job: Profile, shape: str, inputs: Mapping[str, Any]) -> InputValues:
    """The values of these inputs while a candidate is counted, for all candidates the same."""
    seed = int(content_digest(str(job.secret), shape)[:12], 16)
    small = dict(zip(inputs, _small_inputs(job.path, job.candidate.target), strict=False))
    return draw_inputs(seed, inputs, small, open_task(job.path, job.candidate.target).domain)


def _launch(
    path: str,
    candidate: CandidateJob,
    shape: str,
    values: list[Any],
    execute: Callable[[CandidateLaunch], None],
    num_sms: int = 0,
    **memory: Any,
) -> tuple[list[torch.Tensor], Verdict | None]:
    """The outputs of `run_launcher`; what the candidate does wrong is a verdict."""
    try:
        return run_launcher(path, candidate, shape, values, execute, num_sms, **memory), None
    except LaunchError as error:
        return [], Verdict(Word.STATIC, "launch", str(error))
    except (OutOfBounds, Race, EndlessLoop, InterpreterError, NotImplementedError) as error:
        if isinstance(error, NotImplementedError) and not NO_INTERPRETER.search(str(error)):
            raise
        about = describe_shape(path, shape, candidate.target)
        return [], _to_verdict(error, about, path if candidate.kernel.digest == candidate.seed.digest else "")


def _to_verdict(error: BaseException, about: dict[str, str], file: str) -> Verdict:
    """What the interpreter found, with the line of the kernel; file is the task's where the kernel is its own."""
    if lacks := NO_INTERPRETER.search(str(error)):
        said = (
            f"cannot be judged without a GPU: {lacks[1].replace('_asm', ' PTX')} not supported in Triton's interpreter"
        )
        return Verdict(Word.STATIC, "judge", said, detail=about)
    cause = error
    while isinstance(cause, InterpreterError) and cause.__cause__ is not None:
        cause = cause.__cause__  # a helper function's own error comes wrapped, once per call
    words = {OutOfBounds: Word.MEMORY, Race: Word.RACE, EndlessLoop: Word.TIMEOUT, OffsetWraps: Word.MEMORY}
    word = words.get(type(cause), Word.CRASH)
    reason = str(error)[:500] if word is Word.CRASH else str(cause)
    line = "" if word is Word.CRASH else find_line(cause)
    if line:
        reason = name_line(reason, line, file)
    return Verdict(word, "run", reason, detail=about)


def _function(launch: CandidateLaunch, variant: str) -> Any:
    return _functions(launch.kernel.code, launch.kernel.digest, variant)[launch.step.function]


@lru_cache(maxsize=64)
def _functions(code: str, digest: str, variant: str) -> dict[str, Any]:
    """The functions of a kernel's code: `plain`, as a float32 `twin`, or `counted`.

    Counting leaves its own `range` in the functions' namespace, so judged functions never share one with it.
    """
    return load_functions(widen_source(code) if variant == "twin" else code, f"{digest}{variant}")


@lru_cache(maxsize=64)
def _reads_values(path: str, shape: str, target: Target) -> bool:
    """True if the launcher's launches may depend on the values of its inputs, which zeros do not show."""
    return trace.run_launcher(open_task(path, target), shape, target).device != "meta"


@lru_cache(maxsize=16)
def _whole_numbers(path: str, shape: str, target: Target) -> dict[str, torch.Tensor]:
    """The task's own lengths and indices of a shape by name: a launcher may make others of their values."""
    task, named = open_task(path, target), open_case(path, shape, target)
    names = [n for n, v in zip(named.names, named.inputs, strict=True) if isinstance(v, torch.Tensor) and _is_whole(v)]
    if not names:
        return {}
    large = trace.count_elements(task, shape, target) > MADE_ELEMENTS
    case = trace.build_formal(task, shape, target, True) if large else trace.build_real(task, shape, target)
    real = dict(zip(case.names, case.inputs, strict=True))
    return {name: real[name] for name in names if not real[name].is_meta and bool(real[name].any())}


def _is_whole(value: torch.Tensor) -> bool:
    return not (value.is_floating_point() or value.is_complex()) and value.numel() <= trace.WHOLE_ELEMENTS


@lru_cache(maxsize=4)
def _small_inputs(path: str, target: Target) -> tuple[Any, ...]:
    task = open_task(path, target)
    with standin.pretend_gpu(target, "cpu"):
        return tuple(task.build(find_smallest_shape(task), 0, "cpu").inputs)
