"""The interpreter worker: candidate source under TRITON_INTERPRET, for judging and for counting without a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernelsearch.core.types import Verdict, Word, content_digest
from kernelsearch.kernel.launch import LaunchError, Passed, Plan, Scratch, Step, bind
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import Target
from kernelsearch.worker.isolation.sandbox import Limits
from kernelsearch.worker.messages.jobs import Candidate, Interpret, Profile, Profiled, Ran

if TYPE_CHECKING:
    import torch

SHIFTS = {"shuffled": 16}
"""Bytes by which buffers begin after a multiple of 512 in runs of an order: 16 is what Triton's binaries may rely on."""

LIMITS = Limits(cpu_s=600)  # a backstop: the driver's wall clock ends a job long before


def preload() -> None:
    """Imports what every job needs, once, before forking; TRITON_INTERPRET is in the environment."""
    import torch
    import torch._dynamo  # a second's work that torch would do at the first call under a dispatch mode, in every worker

    torch.set_num_threads(1)
    import kernelsearch.worker.interpreter.counting
    import kernelsearch.worker.interpreter.programs
    import kernelsearch.worker.interpreter.races
    import kernelsearch.worker.judging.planning
    import kernelsearch.worker.launcher.tensors
    import kernelsearch.worker.launcher.trace
    import kernelsearch.worker.launcher.twin  # noqa: F401


def handle(job: Interpret | Profile) -> Any:
    return _interpret(job) if isinstance(job, Interpret) else _profile(job)


def failed(job: Any, message: str, trace: str) -> Any:
    verdict = Verdict(Word.CRASH, "run", message, detail={"trace": trace})
    return Profiled(verdict=verdict) if isinstance(job, Profile) else (Ran(verdict=verdict),)


def _interpret(job: Interpret) -> tuple[Ran, ...]:
    task = _task(job.path, job.candidate.target)
    runs = []
    sampled = job.sampled or (0,) * len(job.shapes)
    for shape, inputs, twin, seed in zip(job.shapes, job.inputs, job.twins, sampled, strict=True):
        runs.append(_run_case(task, job.candidate, shape, inputs, job.order, twin, seed, job.num_sms))
        if runs[-1].verdict is not None:
            break
    return tuple(runs)


def _run_case(
    task: Any,
    candidate: Candidate,
    shape: str,
    inputs: tuple[Any, ...],
    order: str,
    twin: bool,
    sampled: int,
    num_sms: int,
) -> Ran:
    """One launcher call; with sampled only a few programs, all where those would need the others, or no outputs.

    What looks suspect is said of whole runs only: programs that did not run have written nothing.
    """
    from kernelsearch.worker.interpreter import sampling
    from kernelsearch.worker.interpreter.programs import ordered, run_programs, watched
    from kernelsearch.worker.interpreter.races import AccessLog
    from kernelsearch.worker.launcher import tensors
    from kernelsearch.worker.launcher.twin import TwinMode, twin_constant

    values = [tensors.unpacked(value) for value in inputs]
    names = _case(str(task.path), shape, candidate.target).names
    kept = frozenset(
        v.untyped_storage().data_ptr()
        for n, v in zip(names, values, strict=True)
        if hasattr(v, "untyped_storage") and n not in task.mutates
    )
    logs: list[AccessLog] = []
    sample = sampling.Sample(sampled) if sampled else None

    def execute(function: Any, step: Step, args: dict[str, Any], buffers: Any, made: set[int]) -> None:
        constexprs = {n: _live(twin_constant(v) if twin else v) for n, v in step.constexprs.items()}
        buffered = {n: a for n, a in args.items() if hasattr(a, "untyped_storage")}
        log = AccessLog(buffered, frozenset(made), kept)
        logs.append(log)
        if sample is None:
            programs = ordered(step.grid, order)
        else:
            sample.begin()
            programs = sample.programs(step.grid, any(isinstance(a, Scratch) for a in step.args.values()))

        def run(programs: list[Any]) -> None:
            with watched(buffers, log):
                run_programs(function, {**args, **constexprs}, frozenset(constexprs), step.grid, programs, buffers)

        start = time.process_time()
        run(programs)
        seconds = time.process_time() - start
        log.suspect = log.suspect or buffers.suspect
        if sample is not None:
            sample.end(log, step.grid, programs, buffered, run, seconds)

    with TwinMode() if twin else nullcontext():
        outputs, verdict = _launch(
            task, candidate, shape, values, execute, "twin" if twin else "plain", SHIFTS.get(order, 0), num_sms
        )
    if verdict is not None:
        return Ran(verdict=verdict)
    if any(tensors.gap_changed(v) for v in values):
        reason = "wrote between the rows of an input whose rows lie apart"
        return Ran(verdict=Verdict(Word.MEMORY, "run", reason, detail={"shape": shape}))
    suspect = next((log.suspect for log in logs if log.suspect), "")
    after = tuple(tensors.packed(v) for v in values)
    if sample is None:
        return Ran(tuple(tensors.packed(o) for o in outputs), after, suspect=suspect)
    if not sample.judged and sample.whole_s <= sampling.AFFORDED_S:
        return _run_case(task, candidate, shape, inputs, order, twin, 0, num_sms)
    if not sample.judged:
        return Ran()
    covers = min((sample.cover(o.untyped_storage().data_ptr()) for o in outputs), default=1.0)
    return Ran(tuple(tensors.packed(o) for o in outputs), after, covers=covers)


def _profile(job: Profile) -> Profiled:
    from kernelsearch.worker.interpreter.counting import Tally, sampled_programs, tallied
    from kernelsearch.worker.interpreter.programs import run_programs

    task = _task(job.path, job.candidate.target)
    counts: dict[str, tuple[Any, ...]] = {}
    for shape in job.shapes:
        found: list[Any] = []
        zeros = _zeros(task, shape, job.candidate.target)
        drawn = _drawn(task, job.candidate, shape, zeros)

        def execute(
            function: Any,
            step: Step,
            args: dict[str, Any],
            buffers: Any,
            made: set[int],
            found: list[Any] = found,
            drawn: Any = drawn,
        ) -> None:
            tally = Tally({n: a for n, a in args.items() if hasattr(a, "untyped_storage")}, drawn)
            constexprs = {n: _live(v) for n, v in step.constexprs.items()}
            programs = sampled_programs(step.grid, drawn)
            with tallied(tally):
                run_programs(
                    function,
                    {**args, **constexprs},
                    frozenset(constexprs),
                    step.grid,
                    programs,
                    tally.buffers,
                    tally.patch,
                )
            found.append(tally.counts(step.function, step.grid[0] * step.grid[1] * step.grid[2], len(programs)))

        _, verdict = _launch(task, job.candidate, shape, zeros, execute, "counted")
        if verdict is not None:
            return Profiled(verdict=verdict)
        counts[shape] = tuple(found)
    return Profiled(counts)


def _launch(
    task: Any,
    candidate: Candidate,
    shape: str,
    values: list[Any],
    execute: Callable[..., None],
    variant: str,
    shift: int = 0,
    num_sms: int = 0,
) -> tuple[list[torch.Tensor], Verdict | None]:
    """Runs the user's launcher with its kernels replaced; what the candidate does wrong is a verdict."""
    from triton.runtime.errors import InterpreterError

    from kernelsearch.worker.interpreter.programs import OutOfBounds
    from kernelsearch.worker.interpreter.races import Race
    from kernelsearch.worker.launcher import intercept, standin, tensors, trace

    c = candidate

    def on_launch(launch: Any) -> None:
        fact = trace.launch_fact(launch, c.config)
        bound = bind(
            c.kernel, c.config, c.seed, c.seed_config, c.sites, fact, launch.resolve_grid, num_sms or c.target.num_sms
        )
        launch.run_pre_hooks(c.config)
        _run_plan(bound.kernel, bound.plan, launch.args, execute, variant, filled, shift)

    filled: set[int] = set()
    case = _case(str(task.path), shape, c.target)
    try:
        with standin.standing_in(c.target, "cpu"), standin.poisoned_empty() as filled, intercept.intercepted(on_launch):
            result = case.launch(*values)
    except LaunchError as error:
        return [], Verdict(Word.STATIC, "launch", str(error))
    except OutOfBounds as error:
        return [], Verdict(Word.MEMORY, "run", str(error), detail={"shape": shape})
    except Race as error:
        return [], Verdict(Word.RACE, "run", str(error), detail={"shape": shape})
    except InterpreterError as error:
        cause = error.__cause__  # a helper function's own error comes wrapped, once per call
        while isinstance(cause, InterpreterError):
            cause = cause.__cause__
        if isinstance(cause, (OutOfBounds, Race)):
            word = Word.MEMORY if isinstance(cause, OutOfBounds) else Word.RACE
            return [], Verdict(word, "run", str(cause), detail={"shape": shape})
        return [], Verdict(Word.CRASH, "run", str(error)[:500], detail={"shape": shape})
    return tensors.flattened(result, case.names, values, task.mutates), None


def _run_plan(
    kernel: Kernel,
    plan: Plan,
    passed: Mapping[str, Any],
    execute: Callable[..., None],
    variant: str,
    filled: set[int],
    shift: int,
) -> None:
    """filled are the storages that hold poison where nothing was written; shift says how buffers are aligned."""
    from kernelsearch.worker.interpreter.programs import Buffers
    from kernelsearch.worker.launcher import tensors

    scratch = {n: tensors.scratch(b, "cpu") for n, b in plan.scratch.items()}
    made = filled | {t.untyped_storage().data_ptr() for n, t in scratch.items() if not plan.scratch[n].zero}
    for name, value in plan.init.items():
        passed[name].fill_(value)
        made.discard(passed[name].untyped_storage().data_ptr())
    functions = _functions(kernel, variant)
    for step in plan.steps:
        args: dict[str, Any] = {}
        for name, arg in step.args.items():
            args[name] = (
                passed[arg.name] if isinstance(arg, Passed) else scratch[arg.name] if isinstance(arg, Scratch) else arg
            )
        buffers = Buffers({n: a for n, a in args.items() if hasattr(a, "untyped_storage")}, shift)
        execute(functions[step.function], step, args, buffers, made)


_FUNCTIONS: dict[tuple[str, str], dict[str, Any]] = {}


def _functions(kernel: Kernel, variant: str) -> dict[str, Any]:
    """The kernel's functions as they are (`plain`), as a float32 `twin`, or `counted`.

    Counting leaves its own `range` in the functions' namespace, so what is judged never shares one with it.
    """
    from kernelsearch.compile.build import load_functions
    from kernelsearch.worker.launcher.twin import twin_source

    key = (kernel.digest, variant)
    if key not in _FUNCTIONS:
        if len(_FUNCTIONS) > 64:
            _FUNCTIONS.clear()
        code = twin_source(kernel.code) if variant == "twin" else kernel.code
        _FUNCTIONS[key] = load_functions(code, f"{kernel.digest}{variant}")
    return _FUNCTIONS[key]


@lru_cache(maxsize=4)
def _task(path: str, target: Target) -> Any:
    from kernelsearch.worker.judging import planning
    from kernelsearch.worker.launcher import trace

    return planning.with_long_shapes(trace.open_task(path, target))


@lru_cache(maxsize=64)
def _case(path: str, shape: str, target: Target) -> Any:
    """The case of a shape, for its launcher and weights; its own inputs are made on the meta device and not used."""
    from kernelsearch.worker.launcher import standin

    task = _task(path, target)
    with standin.standing_in(target, "cpu" if task.form == "kernelbench" else "meta"):
        return task.build(shape, 0, "cpu" if task.form == "kernelbench" else "meta")


def _zeros(task: Any, shape: str, target: Target) -> list[Any]:
    import torch

    from kernelsearch.worker.launcher.trace import lazy_zeros

    return [lazy_zeros(v) if isinstance(v, torch.Tensor) else v for v in _case(str(task.path), shape, target).inputs]


def _drawn(task: Any, candidate: Candidate, shape: str, inputs: list[Any]) -> Any:
    """What these inputs seem to hold while a candidate is counted, by a seed that its source decides."""
    from kernelsearch.worker.interpreter.drawn import of_inputs

    names = _case(str(task.path), shape, candidate.target).names
    seed = int(content_digest(candidate.kernel.digest, shape)[:12], 16)
    small = dict(zip(names, _small_inputs(str(task.path), candidate.target), strict=False))
    return of_inputs(seed, dict(zip(names, inputs, strict=True)), small, task.domain)


@lru_cache(maxsize=4)
def _small_inputs(path: str, target: Target) -> tuple[Any, ...]:
    from kernelsearch.tasks.facts import smallest
    from kernelsearch.worker.launcher import standin

    task = _task(path, target)
    with standin.standing_in(target, "cpu"):
        return tuple(task.build(smallest(task), 0, "cpu").inputs)


def _live(value: Any) -> Any:
    from kernelsearch.compile.build import live_constant

    return live_constant(value)
