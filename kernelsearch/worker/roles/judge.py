"""The judge: the task, its reference in float64, the secret seeds and the tolerances; never candidate code.

It also runs the user's launcher, for traces and grids, because that is trusted code too. One judge serves one task.
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

import torch

from kernelsearch.core import errors
from kernelsearch.core.plugins import describe_error
from kernelsearch.core.types import LaunchFact, TaskFacts, Trace
from kernelsearch.kernel.targets import Target
from kernelsearch.tasks import facts
from kernelsearch.tasks.module import USER_ERRORS
from kernelsearch.tasks.shrink import NAMED_SIZES
from kernelsearch.tasks.task import Task
from kernelsearch.verify import regimes
from kernelsearch.verify.dispatch import DispatchMode
from kernelsearch.verify.drawn_integers import draw_scalars, is_drawn
from kernelsearch.verify.judge import judge_task
from kernelsearch.verify.regime_words import REDRAWN
from kernelsearch.verify.widest import OWN
from kernelsearch.worker.gpu import repeats
from kernelsearch.worker.isolation.sandbox import WorkerLimits
from kernelsearch.worker.judging import planning
from kernelsearch.worker.judging.opened_task import OpenedTask, read_device_memory
from kernelsearch.worker.judging.verdicts import judge_runs, judge_seeded
from kernelsearch.worker.launcher import fit, opening, tensors, trace
from kernelsearch.worker.launcher.standin import pretend_gpu
from kernelsearch.worker.messages import jobs

LIMITS = WorkerLimits(descriptors=4096, file_bytes=None)

MOST_ELEMENTS = 2**24
"""Elements of a judged shape's inputs without a GPU: of twice as many the judge does not know in five minutes.

At a shape made of timed sizes also of any result within the reference, as of the scores of an attention.
"""

DRAWN_HERE, DRAWN_ON_GPU, DRAWN_BETWEEN = 6, 8, 16
"""Shapes of secret sizes at full depth, without a GPU and with one."""
DRAWN_INPUTS, DRAWN_RESULT = 2**18, 2**24
"""Elements on a GPU of the inputs of such a shape, and of any result within the reference."""
DRAWN_REGIMES = ("randn", "whole", "scaled", "blocks")
"""The values at these: normal ones and another, by turns; without a GPU normal ones or others of one scale."""
FEW_VALUES = 256
"""Elements of inputs that say little."""
REDRAWS = 2
"""Cases of each regime of other integers."""
MASKED = 4
"""Cases in which rows begin with -inf, each in another tensor where there are several."""

ALONE = 2
"""Cases in which one input alone is mostly zero."""
PAIRS = 6
"""Pairs of inputs that are numbers of which both are drawn."""
LONG_VALUES = 2
"""Rounds of long shapes whose values are not normal ones: what a kernel does with long rows may depend on them."""
NUMBERS = 4
"""Numbers of a reference at whose multiples it is judged, of more those that the seed says."""

GPU_SCREEN_SHAPES = 2
"""On a GPU each test shape may need its own binary, which costs more than all judging: `screen` takes only two."""


def preload() -> None:
    """Sets up a nursery, which has imported the modules of every job with this one."""
    from torch.fx.experimental import symbolic_shapes  # noqa: F401  (half a second, at the first meta tensor)

    torch.set_num_threads(1)


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

    described = facts.describe(task, traced, lambda task, key: trace.describe_outputs(task, key, job.target))
    trace.must_repeat(task, facts.find_smallest_shape(task), job.target)
    memory = read_device_memory() if job.gpu else fit.memory_of(job.target)
    task, left_out = fit.leave_out_large(task, launches, memory)
    kept = {key for key, _ in task.shapes}
    described = replace(described, shapes=tuple(s for s in described.shapes if s.key in kept))
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
    if what := _try_reference(task, key, target):
        cure = f"sizes can be varied only if the reference reads no values ({what}): add TEST_SHAPES"
    raise errors.TaskError(f"{task.path.name}: {large}: {cure}")


class _LargestResult(DispatchMode):
    """Keeps the number of elements of the largest result of an operation."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.numel())
        return result


def _try_reference(task: Task, key: str, target: Target, size: _LargestResult | None = None) -> str:
    """Raises TaskError if the reference fails at a shape; why that cannot be told without values, else ""."""
    case = trace.build_formal(task, key, target)
    if hasattr(case.reference64, "said"):
        return OWN
    if not all(v.is_meta for v in case.inputs if isinstance(v, torch.Tensor)):
        return ""
    try:
        with pretend_gpu(target, "meta"), size or nullcontext():
            case.reference(*case.inputs)
    except USER_ERRORS as error:
        what = describe_error(error, task.path)
        if isinstance(error, NotImplementedError) or "meta" in what:
            return what
        label = facts.label_shape(task, key)
        raise errors.TaskError(f"{task.path.name}: the reference fails at {label}: {what}") from error
    return ""


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
    cases = _choose_cases(job)
    kinds = ("drawn",) if _OPEN[0].on_cpu else jobs.SIZES  # what a GPU runs is bound ahead of its run
    made = dict.fromkeys(c.shape for c in cases if c.kind in kinds)
    keys = [key for c in cases for key in (c.shape, jobs.even_key(c.shape) if c.kind == "odd" else c.shape)]
    labels = {key: facts.label_shape(_OPEN[0].task, key) for key in keys}
    return jobs.Planned(cases, labels, {key: _trace_made(key) for key in made})


def _trace_made(key: str) -> Trace:
    opened = _OPEN[0]
    opened.launches[key] = opened.list_launches(key)
    return trace.make_trace(key, opened.launches[key])


def _choose_cases(job: jobs.Cases) -> jobs.JudgedCases:
    opened = _OPEN[0]
    if job.depth == "between":
        return tuple(jobs.JudgedCase(key, "randn", job.seed) for key in _draw_between(opened, job.seed + 1))
    keys = opened.judged_shape_keys()
    if job.depth == "screen" and not opened.on_cpu:
        keys = keys[:GPU_SCREEN_SHAPES]
    plan = regimes.plan_regimes(job.depth, len(keys))
    cases = tuple(
        jobs.JudgedCase(key, regime, job.seed + 7 * i)
        for i, (key, wanted) in enumerate(zip(keys, plan, strict=True))
        for regime in wanted
    )
    if job.depth != "full":
        return cases
    if not regimes.are_noise(opened.build_case(keys[-1]).inputs):
        cases += tuple(jobs.JudgedCase(key, regimes.OWN, job.seed + 7 * i + 1) for i, key in enumerate(keys))
    more = [*_draw_cases(opened, job.seed), *_repeat_cases(opened, cases, keys, job.seed)]
    if opened.has_exponentials():
        more += [jobs.JudgedCase(keys[0], "masked", job.seed + n, once=True) for n in range(MASKED)]
    more += [jobs.JudgedCase(keys[0], regime, job.seed, once=True) for regime in ("offset", "stepped")]
    more += [jobs.JudgedCase(keys[0], "sparse", (job.seed | 1) + 2 * n, once=True) for n in range(ALONE)]
    numbers = opened.list_numbers(keys[0])[:NUMBERS]
    more += [jobs.JudgedCase(keys[0], "multiples", job.seed + n, once=True) for n, _ in enumerate(numbers)]
    more += [*_list_redrawn(opened, keys, job.seed), *_list_scalar_cases(opened, keys, job.seed)]
    base = jobs.JudgedCase(keys[0], "randn", job.seed)
    how = {"names": opened.build_case(base.shape).names, "domain": opened.task.domain}
    more += planning.make_probed_cases(base, opened.inputs_of(base), opened.shows_probe, **how)
    more += planning.make_padded_cases(jobs.JudgedCase(keys[0], "mixed", job.seed), opened.task, opened.target)
    if opened.on_cpu:
        more += planning.make_typed_cases(opened.task, job.seed, opened.list_launches)
    return (*cases, *more, *_list_long_cases(opened, keys, job.seed))


def _list_long_cases(opened: OpenedTask, keys: list[str], seed: int) -> list[jobs.JudgedCase]:
    """Cases of made sizes with normal values, and of those that run whole with others."""
    config, is_taken, on_gpu = opened.facts.config, partial(_is_taken, opened), not opened.on_cpu
    is_taken = partial(_is_launched, opened, is_taken) if on_gpu else is_taken
    long = planning.make_long_cases(opened.task, seed, opened.list_launches, config, is_taken, on_gpu)
    long = [replace(c, once=on_gpu) for c in long]
    whole = [c for c in long if c.kind in ("long", "odd", "even") and not c.sampled]
    kinds = ["sorted", "stepped", "shifted", "stepped", "shifted", *["masked"] * opened.has_exponentials()]
    kinds += ["ends", "ends"] * any(map(is_drawn, opened.build_case(keys[0]).inputs))
    drawn = [(n + turn, kind) for turn in range(LONG_VALUES) for n, kind in enumerate(kinds) if whole]
    others = (replace(whole[at % len(whole)], regime=r, seed=seed + n) for n, (at, r) in enumerate(drawn))
    return [*long, *(c for c in others if c.regime != "ends" or opened.takes_redrawn(c))]


def _is_taken(opened: OpenedTask, key: str) -> bool:
    """Whether the reference takes a shape, with results that the judge can hold."""
    size = _LargestResult()
    with suppress(errors.TaskError):
        if _try_reference(opened.task, key, opened.target, size) or not size.elements:  # it needs values
            with size:
                if not opened.takes_shape(key):
                    return False
        return size.elements <= (MOST_ELEMENTS if opened.on_cpu else DRAWN_RESULT)
    return False


def _draw_cases(opened: OpenedTask, seed: int) -> list[jobs.JudgedCase]:
    """Cases of shapes with secret sizes."""
    here = opened.on_cpu
    keys = planning.draw_shapes(
        opened.task,
        seed,
        DRAWN_HERE if here else DRAWN_ON_GPU,
        lambda key: trace.count_elements(opened.task, key, opened.target),
        planning.DRAWN_ELEMENTS if here else DRAWN_INPUTS,
        partial(_is_launched, opened, partial(_is_taken, opened)),
    )
    cases: list[jobs.JudgedCase] = []
    for number, key in enumerate(keys, 1):
        few = here and planning.runs_few(opened.list_launches(key), opened.facts.config)
        values = DRAWN_REGIMES[number % 2 :: 2][:1] if here else ("randn", DRAWN_REGIMES[1 + number % 3])
        own = seed + 104729 * number
        cases += [jobs.JudgedCase(key, regime, own, sampled=few, once=True) for regime in values]
    return cases


def _draw_between(opened: OpenedTask, seed: int) -> list[str]:
    """The keys of shapes with secret sizes in the range of the timed ones, none larger than the largest of these."""
    task = replace(opened.task, test_shapes=())
    count = partial(trace.count_elements, task, target=opened.target)

    def takes(key: str) -> bool:
        """Whether the reference takes a shape; a kernel that is its own is evaluated, as on a GPU a fault ends all."""
        if _try_reference(task, key, opened.target) != OWN:
            return True
        return count(key) <= DRAWN_RESULT and opened.takes_shape(key)

    is_taken = partial(_is_launched, opened, takes)
    return planning.draw_shapes(task, seed, DRAWN_BETWEEN, count, max(map(count, task.keys)), is_taken, apart=True)


def _is_launched(opened: OpenedTask, takes: Callable[[str], bool], key: str) -> bool:
    """Whether a shape is taken, by the launcher too."""
    with suppress(errors.TaskError):
        return takes(key) and not any(map(opening.is_refused, opened.list_launches(key)))
    return False


def _repeat_cases(opened: OpenedTask, cases: jobs.JudgedCases, keys: list[str], seed: int) -> Iterator[jobs.JudgedCase]:
    """Cases with more scales than these have, at shapes whose inputs tell something.

    Scales of rows go on from one case to the next only at one shape: that with the most.
    """
    counts = {key: regimes.count_scales(opened.build_case(key).inputs, opened.count_rows(key)) for key in keys}
    sizes = {key: trace.count_elements(opened.task, key, opened.target) for key in keys}
    telling = [key for key in keys if sizes[key] >= FEW_VALUES] or [max(keys, key=sizes.__getitem__)]
    for regime, wanted in regimes.WANTED.items():
        wanted = wanted // 2 if regime == "extreme" and opened.has_exponentials() else wanted  # half of the octaves
        shapes = telling if regime == "whole" else [max(telling, key=counts.__getitem__)]
        yield from planning.repeat_cases(cases, regime, wanted, shapes, counts.__getitem__, seed + 100_003)


def _list_redrawn(opened: OpenedTask, keys: list[str], seed: int) -> list[jobs.JudgedCase]:
    """Cases with other values of integer inputs, as far as the reference takes them."""
    if not any(map(is_drawn, opened.build_case(keys[0]).inputs)):
        return []
    draws = {r: (keys * 4)[: 2 * REDRAWS if r == "ends" else REDRAWS] for r in REDRAWN}
    others = [jobs.JudgedCase(key, r, seed + i) for r, shapes in draws.items() for i, key in enumerate(shapes)]
    return list(filter(opened.takes_redrawn, others))


def _list_scalar_cases(opened: OpenedTask, keys: list[str], seed: int) -> list[jobs.JudgedCase]:
    """Cases with other values of inputs that are numbers, as far as the reference takes them and DOMAIN has no word."""
    own, shapes = opened.build_case(keys[0]), (*opened.facts.shapes, *opened.facts.test_shapes)
    names = [n for n, v in zip(own.names, own.inputs, strict=True) if not isinstance(v, torch.Tensor)]
    formal, cases = [trace.build_formal(opened.task, s.key, opened.target) for s in shapes if names], []
    others: dict[str, list[Any]] = {}
    for name in (n for n in names if n not in opened.task.domain):
        values = [dict(zip(c.names, c.inputs, strict=True)).get(name) for c in formal]
        drawn = draw_scalars(values, seed)
        if left := [v for v in drawn if v not in values]:
            others[name] = left
        for number, value in enumerate(drawn):
            at = zip(("scaled", "randn"), keys[number % len(keys) :] + keys)  # an epsilon shows where a row is small
            cases += [jobs.JudgedCase(key, r, seed + number, once=True, scalars=((name, value),)) for r, key in at]
    rng, pairs = random.Random(f"{seed}/pairs"), list(itertools.combinations(others, 2))
    for number, pair in enumerate(rng.sample(pairs, min(PAIRS, len(pairs)))):
        both = tuple((name, rng.choice(others[name])) for name in pair)
        cases.append(jobs.JudgedCase(keys[number % len(keys)], "randn", seed + number, once=True, scalars=both))
    return list(filter(opened.takes_scalar, cases))


def _case_inputs(job: jobs.CaseInputs) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(tensors.pack(v) for v in _OPEN[0].inputs_of(case)) for case in job.cases)


def _judge_task(job: jobs.JudgeTask) -> tuple[str, ...]:
    opened = _OPEN[0]
    keys = opened.judged_shape_keys()
    cases = [jobs.JudgedCase(key, regime, 17) for key in keys for regime in ("mixed", "randn")]
    cases = [*cases, *_list_redrawn(opened, keys, 17)]
    own = opened.build_case(keys[0])
    judged = [(opened.expectation_of(c), opened.inputs_before(c)) for c in cases]
    return judge_task(judged, own.inputs, own.names)


_HANDLERS: dict[type, Callable[[Any], Any]] = {
    jobs.OpenTask: _open,
    jobs.RecordCall: _record_call,
    jobs.LauncherGrid: _grid,
    jobs.DescribeLaunch: _describe_launch,
    jobs.Cases: _cases,
    jobs.CaseInputs: _case_inputs,
    jobs.JudgeRuns: lambda job: judge_runs(_OPEN[0], job),
    jobs.JudgeSeeded: lambda job: judge_seeded(_OPEN[0], job),
    jobs.KeepBusy: lambda job: repeats.keep_busy(job.seconds),
    jobs.JudgeTask: _judge_task,
}
