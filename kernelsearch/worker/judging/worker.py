"""The judge: the task, its reference in float64, the secret seeds and the tolerances; never candidate code.

It also answers what only the user's launcher knows (traces, grids), because that is trusted code too.
One judge serves one task. On a GPU machine expectations are computed on the GPU, so that eager's error is
the GPU's own, and kept on the CPU, so that judging a candidate disturbs nobody's timing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernelsearch.errors import KernelsearchError
from kernelsearch.targets import Target
from kernelsearch.types import TaskFacts, TensorFact, Trace, Verdict, Word
from kernelsearch.worker.messages.jobs import (
    Case, CaseInputs, Cases, Failure, JudgeRuns, JudgeSeeded, JudgeTask, LauncherGrid, OpenTask,
)  # fmt: skip
from kernelsearch.worker.isolation.sandbox import Limits

if TYPE_CHECKING:
    from kernelsearch.verify.expectation import Expectation

LIMITS = Limits(descriptors=4096, file_bytes=None)

GPU_SCREEN_SHAPES = 2
"""On a GPU every test shape may need a binary of its own, which costs more than all judging: two must do for `screen`."""


def preload() -> None:
    """Imports what every job needs, once, before forking."""
    import torch

    import kernelsearch.tasks.facts
    import kernelsearch.verify.judge
    import kernelsearch.verify.regimes
    import kernelsearch.worker.launcher.trace
    import kernelsearch.worker.launcher.twin  # noqa: F401

    torch.set_num_threads(1)


@dataclass
class _Open:
    """The task that this judge serves, and what it has worked out so far."""

    task: Any
    facts: TaskFacts
    target: Target
    device: str
    launches: dict[str, Any]
    inputs: dict[tuple[Case, bool], list[Any]] = field(default_factory=dict)
    expected: dict[tuple[Case, bool], Expectation] = field(default_factory=dict)
    before: dict[tuple[Case, bool], list[Any]] = field(default_factory=dict)
    timed: dict[Case, tuple[Expectation, list[Any]]] = field(default_factory=dict)
    runs: dict[str, Any] = field(default_factory=dict)


_OPEN: list[_Open] = []


def handle(job: Any) -> Any:
    return _HANDLERS[type(job)](job)


def failed(job: Any, message: str, trace: str) -> Failure:
    kind, _, rest = message.partition(": ")
    known = {c.__name__ for c in KernelsearchError.__subclasses__()}
    return Failure(rest, kind) if kind in known else Failure(f"the judge failed: {message}\n{trace}", "WorkerError")


def _open(job: OpenTask) -> TaskFacts:
    from kernelsearch.tasks import facts
    from kernelsearch.worker.judging import planning
    from kernelsearch.worker.launcher import fit, trace

    target = None if job.gpu else job.target
    task = trace.open_task(job.path, target)
    launches: dict[str, Any] = {}

    def traced(task: Any, key: str) -> Trace:
        run = trace.run(task, key, job.target)
        launches[key] = run.launches
        return Trace(key, tuple(trace.launch_fact(launch) for launch in run.launches))

    described = facts.describe(task, traced, lambda task, key: trace.output_facts(task, key, job.target))
    memory = _device_memory() if job.gpu else fit.memory_of(job.target)
    notes = fit.fit_notes(task, memory, lambda changed, key: trace.run(changed, key, job.target).launches)
    described = replace(described, notes=(*described.notes, *notes))
    task = planning.with_long_shapes(task)
    _OPEN[:] = [_Open(task, described, job.target, "cuda" if job.gpu else "cpu", launches)]
    return described


def _device_memory() -> int:
    import torch

    return torch.cuda.get_device_properties(0).total_memory


def _grid(job: LauncherGrid) -> tuple[int, ...]:
    return _OPEN[0].launches[job.shape][job.launch].resolve_grid(job.meta)


def _cases(job: Cases) -> tuple[Case, ...]:
    from kernelsearch.verify import regimes
    from kernelsearch.worker.judging import planning

    keys = _judged_shapes()
    if job.depth == "screen" and _OPEN[0].device == "cuda":
        keys = keys[:GPU_SCREEN_SHAPES]
    plan = regimes.plan(job.depth, len(keys))
    cases = tuple(
        _halved(Case(key, regime, job.seed + 7 * i))
        for i, (key, wanted) in enumerate(zip(keys, plan, strict=True)) for regime in wanted
    )  # fmt: skip
    if job.depth != "full":
        return cases
    opened, twin = _OPEN[0], _OPEN[0].device == "cpu"
    base = _halved(Case(keys[0], "randn", job.seed))
    more = list(planning.probed(base, _inputs(base, twin), lambda case: _expected(case, twin)))
    more += planning.padded(_halved(Case(keys[0], "mixed", job.seed)), opened.task, opened.target)
    if twin:
        config = opened.facts.config
        more += planning.long_cases(opened.task, job.seed, lambda key: _seed_run(key).launches, config)
    return (*cases, *map(_halved, more))


def _case_inputs(job: CaseInputs) -> tuple[tuple[Any, ...], ...]:
    from kernelsearch.worker.launcher import tensors

    return tuple(tuple(tensors.packed(v) for v in _inputs(case, job.twin)) for case in job.cases)


def _judge_runs(job: JudgeRuns) -> Verdict:
    from kernelsearch.verify.judge import Probe, judge, sensitivity
    from kernelsearch.verify.sampled import judge_sampled
    from kernelsearch.worker.launcher import tensors

    opened, worst, unsampled = _OPEN[0], 0.0, {}
    unmoved: dict[Case, list[Any]] = {}
    for case, run in zip(job.cases, job.runs, strict=True):
        if case.sampled and not run.outputs:
            unsampled = {"not sampled": True}
            continue
        before = _before(case, job.twin)
        outputs = unmoved[case] = [tensors.unpacked(o) for o in run.outputs]
        after = [tensors.unpacked(v) for v in run.inputs]
        expected = _expected(case, job.twin)
        if case.sampled:
            verdict = judge_sampled(expected, outputs, run.idle, before, after, _mutated(opened, case), depth=job.depth)
        else:
            verdict = judge(expected, outputs, before, after, _mutated(opened, case), depth=job.depth)
        base = replace(case, probe=None)
        if case.probe is not None and base in unmoved and verdict.word in (Word.ACCEPT, Word.WRONG):
            verdict = sensitivity(
                _expected(base, job.twin), expected, unmoved[base], outputs, Probe(*case.probe), depth=job.depth
            )
        if verdict.accepted and run.again:
            verdict = _repeated(expected, outputs, run, job)
        if not verdict.accepted:
            return _about(verdict, case)
        worst = max(worst, verdict.error_ratio or 0.0)
    return Verdict(Word.ACCEPT, "judge", depth=job.depth, error_ratio=worst, detail=unsampled)


def _before(case: Case, twin: bool) -> list[Any]:
    """The inputs of a case as they were, on the CPU."""
    kept = _OPEN[0].before
    if (case, twin) not in kept:
        kept[case, twin] = [_cpu(v) for v in _inputs(case, twin)]
    return kept[case, twin]


def _repeated(expected: Expectation, outputs: list[Any], run: Any, job: JudgeRuns) -> Verdict:
    """Repeated runs that were not equal bit for bit: a race, or, with atomics, a spread that has a limit."""
    from kernelsearch.verify.judge import spread_between
    from kernelsearch.worker.launcher import tensors

    about = {"shape": expected.shape, "regime": expected.regime}
    if not job.atomics:
        reason = "runs of the same inputs differ, and the kernel has no atomics that could explain it"
        return Verdict(Word.RACE, "judge", reason, job.depth, detail=about)
    worst = max(spread_between(expected, outputs, [tensors.unpacked(o) for o in again]) for again in run.again)
    if worst > 1.0:
        reason = f"runs of the same inputs differ by {worst:.3g} times what is allowed"
        return Verdict(Word.RACE, "judge", reason, job.depth, error_ratio=worst, detail=about)
    return Verdict(Word.ACCEPT, "judge", depth=job.depth, error_ratio=worst)


def _about(verdict: Verdict, case: Case) -> Verdict:
    from kernelsearch.tasks.facts import shape_fact

    said = " (inputs with padded rows)" if case.padded else ""
    detail = {**verdict.detail, "label": shape_fact(_OPEN[0].task, case.shape).label}
    detail |= {"padded": True} if case.padded else {}
    return replace(verdict, reason=f"{verdict.reason}{said}", detail=detail)


def _judge_seeded(job: JudgeSeeded) -> Verdict:
    import torch

    from kernelsearch.verify.judge import judge, spread_between
    from kernelsearch.worker.messages import ipc

    expected, before = _timed(job.case)
    mutated = _mutated(_OPEN[0], job.case)
    outputs = [ipc.opened(o) for o in job.run.outputs]
    verdict = judge(expected, outputs, before, [ipc.opened(v) for v in job.run.inputs], mutated, depth="full")
    for timed in ([ipc.opened(o) for o in again] for again in job.run.again):
        if not verdict.accepted:
            break
        found = judge(expected, timed, depth="full")
        if not found.accepted or not job.atomics:
            said = found.reason or "its bits are not those of the judged run, and the kernel has no atomics"
            return replace(found, word=Word.TIMING, reason=f"run as it is timed, it gives another answer: {said}")
        spread = spread_between(expected, outputs, timed)
        verdict = replace(verdict, error_ratio=max(verdict.error_ratio or 0.0, found.error_ratio or 0.0, spread))
    if job.case not in _OPEN[0].timed:
        del expected, before, outputs
        torch.cuda.empty_cache()
    return verdict


CACHED_SHARE = 0.1
"""Of the GPU's memory, what may be kept of one timed shape's right answer; all of them may take three times that."""


def _timed(case: Case) -> tuple[Expectation, list[Any]]:
    """The right answer and the inputs of a timed shape, in GPU memory; kept for the next candidate while there is room."""
    import torch

    from kernelsearch.verify.expectation import expectation

    opened = _OPEN[0]
    if case in opened.timed:
        return opened.timed[case]
    held = torch.cuda.memory_allocated()
    built = opened.task.build(case.shape, case.seed, opened.device)
    expected = expectation(
        built.reference64, built.reference, built.inputs, shape=case.shape, regime=case.regime,
        precision=opened.task.precision, mutates=_mutated(opened, case), seed=case.seed,
        tolerance=opened.task.tolerance or 1.0,
    )  # fmt: skip
    found = expected, list(built.inputs)
    torch.cuda.empty_cache()  # what the reference needed on the way is for the run worker
    memory = _device_memory()
    small = torch.cuda.memory_allocated() - held <= CACHED_SHARE * memory and held <= 2 * CACHED_SHARE * memory
    if small and torch.cuda.mem_get_info()[0] > memory / 2:
        opened.timed[case] = found
    return found


def _judge_task(job: JudgeTask) -> tuple[str, ...]:
    from kernelsearch.verify.judge import judge_task

    keys = _judged_shapes()
    cases = [_halved(Case(key, regime, 17)) for key in keys for regime in ("mixed", "randn")]
    twin = _OPEN[0].device == "cpu"
    return judge_task([(_expected(c, twin), [_cpu(v) for v in _inputs(c, twin)]) for c in cases])


_HANDLERS: dict[type, Callable[[Any], Any]] = {
    OpenTask: _open,
    LauncherGrid: _grid,
    Cases: _cases,
    CaseInputs: _case_inputs,
    JudgeRuns: _judge_runs,
    JudgeSeeded: _judge_seeded,
    JudgeTask: _judge_task,
}


def _mutated(opened: _Open, case: Case) -> tuple[int, ...]:
    names = _built(case.shape).names
    return tuple(names.index(n) for n in opened.task.mutates if n in names)


_BUILT: dict[str, Any] = {}


def _built(shape: str) -> Any:
    """The case of a shape with its weights, and inputs that the regimes replace."""
    from kernelsearch.worker.launcher import standin

    opened = _OPEN[0]
    if shape not in _BUILT:
        if opened.device == "cuda":
            _BUILT[shape] = opened.task.build(shape, 0, "cuda")
        else:
            with standin.standing_in(opened.target, "cpu"):
                _BUILT[shape] = opened.task.build(shape, 0, "cpu")
    return _BUILT[shape]


def _inputs(case: Case, twin: bool) -> list[Any]:
    from kernelsearch.verify import regimes
    from kernelsearch.worker.launcher.twin import twin_tensor

    opened = _OPEN[0]
    if (case, twin) in opened.inputs:
        return opened.inputs[case, twin]
    if case.probe is not None:
        from kernelsearch.verify.judge import Probe, apply_probe

        opened.inputs[case, twin] = apply_probe(_inputs(replace(case, probe=None), twin), Probe(*case.probe))
    elif case.padded:
        from kernelsearch.worker.launcher import tensors

        opened.inputs[case, twin] = [tensors.padded(v) for v in _inputs(replace(case, padded=False), twin)]
    else:
        built = _built(case.shape)
        values = [twin_tensor(v) for v in built.inputs] if twin else list(built.inputs)
        opened.inputs[case, twin] = regimes.make(
            values, case.regime, case.seed, names=built.names, domain=opened.task.domain, rows=_rows(case.shape)
        )
    return opened.inputs[case, twin]


def _expected(case: Case, twin: bool) -> Expectation:
    from kernelsearch.verify.expectation import expectation
    from kernelsearch.worker.launcher.twin import TwinMode

    opened = _OPEN[0]
    if (case, twin) not in opened.expected:
        built = _built(case.shape)

        def eager(*inputs: Any) -> Any:
            if not (twin and case.half):
                return built.reference(*inputs)
            with TwinMode():
                return built.reference(*inputs)

        found = expectation(
            built.reference64, eager, _inputs(case, twin), shape=case.shape, regime=case.regime,
            precision=opened.task.precision, mutates=_mutated(opened, case),
            strides=() if case.padded else _strides(case.shape),
            seed=case.seed, tolerance=opened.task.tolerance or 1.0,
        )  # fmt: skip
        opened.expected[case, twin] = _on_cpu(found)
    return opened.expected[case, twin]


def _judged_shapes() -> list[str]:
    return [s.key for s in _OPEN[0].facts.test_shapes or _OPEN[0].facts.shapes]


def _halved(case: Case) -> Case:
    """The case, saying whether a kernel is passed a 16-bit float at its shape."""
    from kernelsearch.worker.launcher import trace

    facts = (a for launch in _seed_run(case.shape).launches for a in trace.launch_fact(launch).args.values())
    return replace(case, half=any(isinstance(a, TensorFact) and a.dtype in ("bf16", "fp16") for a in facts))


def _strides(shape: str) -> tuple[Any, ...]:
    """The strides of the seed's outputs, which every candidate must keep."""
    return tuple(tuple(o.stride()) for o in _seed_outputs(shape))


def _rows(shape: str) -> int | None:
    """The length of the first output's first axis, along which regimes are mixed."""
    first = next(iter(_seed_outputs(shape)), None)
    return first.shape[0] if first is not None and first.dim() else None


def _seed_outputs(shape: str) -> tuple[Any, ...]:
    return _seed_run(shape).outputs


def _seed_run(shape: str) -> Any:
    from kernelsearch.worker.launcher import trace

    opened = _OPEN[0]
    if shape not in opened.runs:
        opened.runs[shape] = trace.run(opened.task, shape, opened.target)
    return opened.runs[shape]


def _cpu(value: Any) -> Any:
    return value.cpu() if hasattr(value, "cpu") else value


def _on_cpu(found: Any) -> Any:
    """The same expectation with its tensors on the CPU."""

    def moved(part: Any) -> Any:
        if part is None:
            return None
        names = [n for n in part.__dataclass_fields__ if hasattr(getattr(part, n), "cpu")]
        return replace(part, **{n: getattr(part, n).cpu() for n in names})

    outputs = tuple(replace(moved(o), limits=moved(o.limits)) for o in found.outputs)
    return replace(found, outputs=outputs)

