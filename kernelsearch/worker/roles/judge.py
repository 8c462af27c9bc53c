"""The judge: the task, its reference in float64, the secret seeds and the tolerances; never candidate code.

It also runs the user's launcher, for traces and grids, because that is trusted code too. One judge serves one task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernelsearch.core import errors
from kernelsearch.core.types import TaskFacts, Trace, Verdict
from kernelsearch.worker.isolation.sandbox import Limits
from kernelsearch.worker.messages import jobs

if TYPE_CHECKING:
    from kernelsearch.worker.judging.opened import Opened

LIMITS = Limits(descriptors=4096, file_bytes=None)

GPU_SCREEN_SHAPES = 2
"""On a GPU each test shape may need its own binary, which costs more than all judging: `screen` takes only two."""


def preload() -> None:
    """Imports the modules of every job, once, before forking."""
    import torch

    import kernelsearch.worker.judging.verdicts  # noqa: F401

    torch.set_num_threads(1)


_OPEN: list[Opened] = []


def handle(job: Any) -> Any:
    return _HANDLERS[type(job)](job)


def failed(job: Any, message: str, trace: str) -> jobs.Failure:
    kind, _, rest = message.partition(": ")
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, errors.KernelsearchError):
        return jobs.Failure(rest, kind)
    return jobs.Failure(f"the judge failed: {message}\n{trace}", "WorkerError")


def _open(job: jobs.OpenTask) -> TaskFacts:
    from kernelsearch.tasks import facts
    from kernelsearch.worker.judging import opened, planning
    from kernelsearch.worker.launcher import fit, trace

    target = None if job.gpu else job.target
    task = trace.open_task(job.path, target)
    launches: dict[str, Any] = {}

    def traced(task: Any, key: str) -> Trace:
        run = trace.run(task, key, job.target)
        launches[key] = run.launches
        return Trace(key, tuple(trace.launch_fact(launch) for launch in run.launches))

    described = facts.describe(task, traced, lambda task, key: trace.output_facts(task, key, job.target))
    memory = opened.device_memory() if job.gpu else fit.memory_of(job.target)
    notes = fit.fit_notes(task, memory, lambda changed, key: trace.run(changed, key, job.target).launches)
    described = replace(described, notes=(*described.notes, *notes))
    task = planning.with_long_shapes(task)
    _OPEN[:] = [opened.Opened(task, described, job.target, "cuda" if job.gpu else "cpu", launches)]
    return described


def _outline(job: jobs.OutlineTask) -> Any:
    from kernelsearch.worker.launcher import outline

    return outline.outlined(job.path, job.target)


def _grid(job: jobs.LauncherGrid) -> tuple[int, ...]:
    return _OPEN[0].launches[job.shape][job.launch].resolve_grid(job.meta)


def _cases(job: jobs.Cases) -> tuple[jobs.Case, ...]:
    from kernelsearch.verify import regimes
    from kernelsearch.worker.judging import planning

    opened = _OPEN[0]
    keys = opened.judged_shapes()
    if job.depth == "screen" and not opened.twin:
        keys = keys[:GPU_SCREEN_SHAPES]
    plan = regimes.plan(job.depth, len(keys))
    cases = tuple(
        opened.halved(jobs.Case(key, regime, job.seed + 7 * i))
        for i, (key, wanted) in enumerate(zip(keys, plan, strict=True))
        for regime in wanted
    )
    if job.depth != "full":
        return cases
    twin = opened.twin
    base = opened.halved(jobs.Case(keys[0], "randn", job.seed))
    more = list(planning.probed(base, opened.inputs(base, twin), lambda case: opened.expected(case, twin)))
    more += planning.padded(opened.halved(jobs.Case(keys[0], "mixed", job.seed)), opened.task, opened.target)
    if twin:

        def launches(key: str) -> tuple[Any, ...]:
            return opened.seed_run(key).launches

        more += planning.typed_cases(opened.task, job.seed, launches)
        more += planning.long_cases(opened.task, job.seed, launches, opened.facts.config)
    return (*cases, *map(opened.halved, more))


def _case_inputs(job: jobs.CaseInputs) -> tuple[tuple[Any, ...], ...]:
    from kernelsearch.worker.launcher import tensors

    return tuple(tuple(tensors.packed(v) for v in _OPEN[0].inputs(case, job.twin)) for case in job.cases)


def _judge_runs(job: jobs.JudgeRuns) -> Verdict:
    from kernelsearch.worker.judging.verdicts import judge_runs

    return judge_runs(_OPEN[0], job)


def _judge_seeded(job: jobs.JudgeSeeded) -> Verdict:
    from kernelsearch.worker.judging.verdicts import judge_seeded

    return judge_seeded(_OPEN[0], job)


def _judge_task(job: jobs.JudgeTask) -> tuple[str, ...]:
    from kernelsearch.verify.judge import judge_task

    opened = _OPEN[0]
    keys, twin = opened.judged_shapes(), opened.twin
    cases = [opened.halved(jobs.Case(key, regime, 17)) for key in keys for regime in ("mixed", "randn")]
    return judge_task([(opened.expected(c, twin), opened.before(c, twin)) for c in cases])


_HANDLERS: dict[type, Callable[[Any], Any]] = {
    jobs.OpenTask: _open,
    jobs.OutlineTask: _outline,
    jobs.LauncherGrid: _grid,
    jobs.Cases: _cases,
    jobs.CaseInputs: _case_inputs,
    jobs.JudgeRuns: _judge_runs,
    jobs.JudgeSeeded: _judge_seeded,
    jobs.JudgeTask: _judge_task,
}
