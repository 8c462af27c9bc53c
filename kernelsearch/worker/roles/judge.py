"""The judge: the task, its reference in float64, the secret seeds and the tolerances; never candidate code.

It also runs the user's launcher, for traces and grids, because that is trusted code too. One judge serves one task.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import torch

from kernelsearch.core import errors
from kernelsearch.core.formats import LEFT_OUT
from kernelsearch.core.types import LaunchFact, TaskFacts, Trace
from kernelsearch.kernel.targets import Target
from kernelsearch.tasks import facts
from kernelsearch.tasks.shrink import NAMED_SIZES
from kernelsearch.tasks.task import Task
from kernelsearch.verify.judge import judge_task
from kernelsearch.worker.gpu import repeats
from kernelsearch.worker.isolation.sandbox import WorkerLimits, read_machine_memory
from kernelsearch.worker.judging import planning
from kernelsearch.worker.judging.case_choice import MOST_ELEMENTS, choose_cases, list_redrawn, try_reference
from kernelsearch.worker.judging.opened_task import OpenedTask, read_device_memory
from kernelsearch.worker.judging.verdicts import judge_runs, judge_seeded
from kernelsearch.worker.launcher import fit, opening, tensors, trace
from kernelsearch.worker.messages import jobs

ANSWERS_S, TIMED_S, SLOW_ANSWER_S = 900.0, 60.0, 8.0
"""Processor time without a GPU: for the right answers of all cases, for those of them that are timed to know that, and
of one from which only few cases are judged."""
LIMITS = WorkerLimits(descriptors=4096, file_bytes=None)


def preload() -> None:
    """Sets up a nursery, which has imported the modules of every job with this one."""
    from torch.fx.experimental import symbolic_shapes  # noqa: F401  (half a second, at the first meta tensor)

    torch.set_num_threads(1)
    torch.sparse.check_sparse_tensor_invariants.enable()  # one with wrong indices would end the process


_OPEN: list[OpenedTask] = []


def handle(job: Any) -> Any:
    return _HANDLERS[type(job)](job)


def answer_failure(job: Any, message: str, trace: str) -> jobs.JobFailure:
    kind, _, rest = message.partition(": ")
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, errors.KernelsearchError):
        return jobs.JobFailure(rest, kind)
    if lack := errors.explain_lack_of_memory(message):
        return jobs.JobFailure(f"{lack}: what else uses this GPU? Or give smaller SHAPES", "WorkerError")
    return jobs.JobFailure(f"the judge failed: {message}\n{trace}", "WorkerError")


def _open(job: jobs.OpenTask) -> TaskFacts:
    target = None if job.gpu else job.target
    task = opening.open_task(job.path, target)
    if target:
        _must_be_judged_here(task, target)
    launches: dict[str, Any] = {}
    operations: Counter[str] = Counter()

    def traced(task: Any, key: str) -> Trace:
        run = trace.run_launcher(task, key, job.target)
        launches[key] = run.launches
        operations.update(run.operations if key == task.shapes[0][0] else {})
        return trace.make_trace(key, run.launches)

    outputs = partial(trace.describe_outputs, target=job.target)
    described = facts.describe(task, traced, outputs, partial(_launch_elsewhere, task, job.target))
    trace.must_repeat(task, facts.find_smallest_shape(task), job.target)
    memory = read_device_memory() if job.gpu else fit.memory_of(job.target)
    fitting, left_out = fit.leave_out_large(task, launches, memory, None if job.gpu else read_machine_memory())
    kept = {key for key, _ in (*fitting.shapes, *fitting.test_shapes)}
    task = replace(task, shapes=fitting.shapes)  # made sizes are beyond all test shapes, as workers take them
    shapes, tests = (tuple(s for s in own if s.key in kept) for own in (described.shapes, described.test_shapes))
    described = replace(described, shapes=shapes, test_shapes=tests)
    notes = left_out + fit.write_fit_notes(
        task, memory, lambda changed, key: trace.run_launcher(changed, key, job.target).launches
    )
    if operations and not job.gpu:
        called = ", ".join(f"{name} ({n})" if n > 1 else name for name, n in operations.items())
        notes = (*notes, f"the launcher itself calls {called} of PyTorch: estimated times leave that out")
    described = replace(described, notes=(*described.notes, *notes, *_find_idle_launches(described, launches)))
    task = planning.add_long_shapes(task)
    opened = OpenedTask(task, described, job.target, "cuda" if job.gpu else "cpu", launches)
    _OPEN[:] = [opened]
    return described


def _launch_elsewhere(task: Task, target: Target) -> list[LaunchFact]:
    """The launches at sizes that no block divides, where the launcher takes them: what its grids are there."""
    found, made = list[LaunchFact](), planning.add_long_shapes(task)
    for key in (key for key, _ in made.test_shapes if key.startswith(("odd:", "over:"))):
        with suppress(errors.TaskError):
            found += trace.make_trace(key, trace.run_launcher(made, key, target).launches).launches
    return found


def _must_be_judged_here(task: Task, target: Target) -> None:
    """Raises TaskError if even the smallest judged shape is far too large without a GPU: the reference's own
    error, if it fails at that shape, for then it took no smaller one either.
    """
    counts = {key: trace.count_elements(task, key, target) for key, _ in task.test_shapes or task.shapes}
    key = min(counts, key=lambda key: counts[key])
    if counts[key] <= MOST_ELEMENTS:
        return
    large = f"the smallest shape that is judged has {counts[key]} elements, too many without a GPU"
    cure = "the reference takes no smaller sizes: add TEST_SHAPES that it takes"
    if not any(type(value) is int for value in task.params(key).values()):
        cure = f"use {NAMED_SIZES}, or add TEST_SHAPES"
    if what := try_reference(task, key, target):
        cure = f"sizes can be varied only if the reference reads no values ({what}): add TEST_SHAPES"
    raise errors.TaskError(f"{task.path.name}: {large}: {cure}")


def _find_idle_launches(facts: TaskFacts, launches: dict[str, Any]) -> list[str]:
    """A note on each kernel whose grid is empty at a timed shape, which may be so because no kernel ran before it."""
    idle = {
        (launch.site, shape.label): None
        for shape in facts.shapes
        for launch in launches[shape.key]
        if 0 in launch.resolve_grid({**launch.args, **facts.config})
    }
    return [
        f"the grid of {site} is empty at {label} where no kernel runs: it is in no estimate" for site, label in idle
    ]


def _record_call(job: jobs.RecordCall) -> str:
    from kernelsearch.worker.judging.recorded_launcher import is_launcher, record_launcher
    from kernelsearch.worker.launcher.recorded_call import record_call

    record = record_launcher if is_launcher(job.file, job.name) else record_call
    with mock.patch.object(sys, "argv", [job.script, *job.arguments]):
        return record(job.script, job.file, job.name)


def _grid(job: jobs.LauncherGrid) -> tuple[int, ...]:
    return _OPEN[0].launches[job.shape][job.launch].resolve_grid(job.meta)


def _describe_launch(job: jobs.DescribeLaunch) -> LaunchFact:
    launches = _OPEN[0].launches[job.shape]
    return trace.make_trace(job.shape, launches[job.launch : job.launch + 1], job.config).launches[0]


def _cases(job: jobs.Cases) -> jobs.Planned:
    cases, notes = _choose_in_time(_OPEN[0], job)
    kinds = ("drawn",) if _OPEN[0].on_cpu else jobs.SIZES  # what a GPU runs is bound ahead of its run
    made = dict.fromkeys(c.shape for c in cases if c.kind in kinds)
    keys = [key for c in cases for key in (c.shape, jobs.even_key(c.shape) if c.kind == "odd" else c.shape)]
    labels = {key: facts.label_shape(_OPEN[0].task, key) for key in keys}
    return jobs.Planned(cases, labels, {key: _trace_made(key) for key in made}, notes)


def _choose_in_time(opened: OpenedTask, job: jobs.Cases) -> tuple[jobs.JudgedCases, tuple[str, ...]]:
    """The cases whose right answers do not take too long without a GPU, and a note where others are left out."""
    if job.depth != "full" or not opened.on_cpu:
        return choose_cases(opened, job), ()
    key = opened.judged_shape_keys()[0]
    opened.answer_s = _time_answer(opened, jobs.JudgedCase(key, "mixed", job.seed))
    few = opened.answer_s > SLOW_ANSWER_S
    cases = choose_cases(opened, replace(job, depth="screen") if few else job)
    kept = planning.cut_cases(cases, _time_shapes(opened, cases, key).__getitem__, ANSWERS_S)
    slow = f"a right answer takes {opened.answer_s:.2g} s at {facts.label_shape(opened.task, key)}: {LEFT_OUT}"
    return kept, (f"all but {len(kept)} cases, as {slow}",) if few or len(kept) < len(cases) else ()


def _time_answer(opened: OpenedTask, case: jobs.JudgedCase) -> float:
    """Seconds of processor time for a case's right answer, which is kept."""
    began = time.process_time()
    opened.expectation_of(case)
    return time.process_time() - began


def _time_shapes(opened: OpenedTask, cases: jobs.JudgedCases, known: str) -> dict[str, float]:
    """Seconds for an answer at each shape: by its elements where all then end in time, else timed, smaller ones first.

    What would take too long to time has the time of the largest that was timed, by elements.
    """
    sizes = {c.shape: trace.count_elements(opened.task, c.shape, target=opened.target) for c in cases}
    sizes[known] = max(1, sizes.get(known, 1))
    scaled = {shape: opened.answer_s * max(1.0, size / sizes[known]) for shape, size in sizes.items()}
    if sum(scaled[c.shape] for c in cases) <= ANSWERS_S:
        return scaled
    last, timed = known, {known: opened.answer_s}
    for case in sorted({c.shape: c for c in reversed(cases)}.values(), key=lambda c: sizes[c.shape]):
        scaled[case.shape] = scaled[last] * max(1.0, sizes[case.shape] / sizes[last])
        if case.shape not in timed and sum(timed.values()) + scaled[case.shape] <= TIMED_S:
            timed[case.shape] = scaled[case.shape] = _time_answer(opened, case)
            last = case.shape
    return scaled


def _trace_made(key: str) -> Trace:
    opened = _OPEN[0]
    opened.launches[key] = opened.list_launches(key)
    return trace.make_trace(key, opened.launches[key])


def _case_inputs(job: jobs.CaseInputs) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(tensors.pack(v) for v in _OPEN[0].inputs_of(case)) for case in job.cases)


def _prepare_answers(job: jobs.PrepareAnswers) -> None:
    opened = _OPEN[0]
    opened.prepare_answers(job.cases)
    if not opened.on_cpu:
        for case in job.cases:
            opened.expectation_of(case)


def _judge_task(job: jobs.JudgeTask) -> tuple[str, ...]:
    opened = _OPEN[0]
    keys = opened.judged_shape_keys()
    cases = [jobs.JudgedCase(key, regime, 17) for key in keys for regime in ("mixed", "randn")]
    cases += list_redrawn(opened, keys, 17) if opened.answer_s <= SLOW_ANSWER_S else []
    own = opened.build_case(keys[0])
    opened.prepare_answers(cases)
    judged = [(opened.expectation_of(c), opened.inputs_before(c)) for c in cases]
    return judge_task(judged, own.inputs, own.names)


_HANDLERS: dict[type, Callable[[Any], Any]] = {
    jobs.OpenTask: _open,
    jobs.RecordCall: _record_call,
    jobs.LauncherGrid: _grid,
    jobs.DescribeLaunch: _describe_launch,
    jobs.Cases: _cases,
    jobs.CaseInputs: _case_inputs,
    jobs.PrepareAnswers: _prepare_answers,
    jobs.JudgeRuns: lambda job: judge_runs(_OPEN[0], job),
    jobs.JudgeSeeded: lambda job: judge_seeded(_OPEN[0], job),
    jobs.KeepBusy: lambda job: repeats.keep_busy(job.seconds),
    jobs.JudgeTask: _judge_task,
}
