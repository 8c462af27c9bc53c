"""Counts a candidate's work at timed shapes: a few programs of each launch, on inputs drawn as they are read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import torch

from kernelsearch.core.types import Verdict, content_digest
from kernelsearch.evaluate.counting import POOL, CountedRun, DrawnValues, Tally, UnseenStorages, count_step
from kernelsearch.evaluate.offsets import FollowedRun, check_loaded, check_offsets, follow_step, may_wrap
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.static_model.counts import LaunchCounts
from kernelsearch.tasks.facts import find_smallest_shape
from kernelsearch.verify.domains import narrow
from kernelsearch.worker.judging.candidate_launch import CandidateLaunch, open_case, open_task
from kernelsearch.worker.judging.evaluated_launch import bind_arguments, compile_launch, run_guarded
from kernelsearch.worker.launcher import standin, trace
from kernelsearch.worker.launcher.arguments import tensors_in
from kernelsearch.worker.messages.jobs import Profile, Profiled

FRESH_ELEMENTS = 2**24
"""Elements of memory that nobody has used before: it holds zeros, and filling it takes longer than counting."""
MADE_ELEMENTS = 2**29
"""Elements of inputs that are made for the whole numbers among them."""
FAR_BYTES = 2**31
"""Bytes of a buffer in which what loaded numbers do to offsets of 32 bits is looked at."""


def count_shapes(job: Profile) -> Profiled:
    """Counts by shape, up to the first at which a candidate fails."""
    counts: dict[str, tuple[LaunchCounts, ...]] = {}
    for shape in job.shapes:
        case, target = open_case(job.path, shape, job.candidate.target), job.candidate.target
        if _reads_values(job.path, shape, target):
            inputs = list(trace.run_launcher(open_task(job.path, target), shape, target).case.inputs)
            whole = dict(zip(case.names, inputs, strict=True))
        else:
            whole = _whole_numbers(job.path, shape, target)
            zeros = [trace.make_lazy_zeros(v) if isinstance(v, torch.Tensor) else v for v in case.inputs]
            inputs = [whole[n].clone() if n in whole else v for n, v in zip(case.names, zeros, strict=True)]
        drawn = _draw_inputs(job, shape, dict(zip(case.names, inputs, strict=True)), whole)
        counts[shape], verdict = _count_shape(job, shape, inputs, drawn)
        if verdict is not None:
            return Profiled(verdict=verdict)
    return Profiled(counts)


def _count_shape(
    job: Profile, shape: str, inputs: list[Any], drawn: DrawnValues
) -> tuple[tuple[LaunchCounts, ...], Verdict | None]:
    counts: list[LaunchCounts] = []

    def execute(launch: CandidateLaunch) -> None:
        compiled = compile_launch(launch, job.candidate.target.arch, count_step)[0]
        buffers, args = bind_arguments(launch, storages=UnseenStorages, beside=inputs if compiled.casts else ())
        sizes = [len(b.tensor) for b in buffers.buffers]
        if may_wrap(compiled.module, max(sizes, default=0)):
            _check_offsets(job, launch, drawn, inputs)
        run = CountedRun(compiled, buffers, args, launch.step.grid, drawn)
        counts.append(_to_counts(launch, run.tally, run.count(), sizes))

    zeros = 0.0 if _reads_values(job.path, shape, job.candidate.target) else None  # the launcher may read a size there
    _, verdict = run_guarded(job.path, job.candidate, shape, inputs, execute, poison=zeros, most=FRESH_ELEMENTS)
    return tuple(counts), verdict


def _check_offsets(job: Profile, launch: CandidateLaunch, drawn: DrawnValues, inputs: list[Any]) -> None:
    """Raises OffsetWraps where offsets of 32 bits wrap, in these programs or with other numbers loaded."""
    compiled = compile_launch(launch, job.candidate.target.arch, follow_step)[0]
    (x, y, _), passed = launch.step.grid, tensors_in(launch.args)

    def check(program: tuple[int, int, int], where: str, instead: str | None = None) -> None:
        buffers, args = bind_arguments(launch, storages=UnseenStorages, beside=inputs if compiled.casts else ())
        run = FollowedRun(compiled, buffers, args, launch.step.grid, drawn.start_again())
        run.where, run.inside_only = instead or where, instead is not None
        run.run_chunk(torch.tensor([program[0] + x * (program[1] + y * program[2])], dtype=torch.int32))

    if max(v.untyped_storage().nbytes() // v.element_size() for v in passed.values()) > FAR_BYTES:
        kinds = (torch.int16, torch.int32, torch.int64)
        few = {n: v for n, v in passed.items() if v.dtype in kinds and v.numel() <= trace.WHOLE_ELEMENTS}
        check_loaded(launch.step.grid, few, check)
    check_offsets(launch.step.grid, check)


def _to_counts(launch: CandidateLaunch, tally: Tally, sampled: int, sizes: list[int]) -> LaunchCounts:
    """The totals scaled from the sampled programs to the whole grid."""
    programs = math.prod(launch.step.grid)
    scale = programs / sampled
    footprint = sum(min(scale * n, sizes[i] if i is not None else math.inf) for (i, _), n in tally.by_buffer.items())
    scaled = "load_bytes store_bytes elements special reductions atomics loads".split()
    return LaunchCounts(
        launch.step.function,
        programs,
        footprint_bytes=footprint,
        iterations=tally.total["iterations"] / sampled,
        flops_dot={k: v * scale for k, v in tally.dots.items()},
        tile=tally.tile,
        **{name: tally.total[name] * scale for name in scaled},
    )


def _draw_inputs(job: Profile, shape: str, inputs: Mapping[str, Any], made: Mapping[str, Any]) -> DrawnValues:
    """The values of a launcher's inputs while a candidate is counted, for all candidates the same.

    Each element of a floating input is a normal value inside its DOMAIN. Integers (indices, lengths) are the task's
    own, as made has them; where those of a timed shape are too many, those of its smallest test shape repeat, which fit
    larger ones too.
    """
    drawn = DrawnValues(int(content_digest(str(job.secret), shape)[:12], 16))
    small = dict(zip(inputs, _small_inputs(job.path, job.candidate.target), strict=False))
    domain = open_task(job.path, job.candidate.target).domain
    for name, value in inputs.items():
        if not isinstance(value, torch.Tensor) or not value.numel():
            continue
        model = small.get(name)
        if value.is_floating_point() and domain.get(name) != "fixed" and value.element_size() > 1:
            normal = torch.from_numpy(drawn.rng.standard_normal(POOL)).clamp(-6, 6)
            drawn.add(value, narrow(normal, domain.get(name)).to(value.dtype), True)
        elif name not in made and isinstance(model, torch.Tensor) and model.dtype == value.dtype and model.numel():
            drawn.add(value, model.reshape(-1), False)
    return drawn


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
    return {name: real[name] for name in names if not real[name].is_meta}


def _is_whole(value: torch.Tensor) -> bool:
    return not (value.is_floating_point() or value.is_complex()) and value.numel() <= trace.WHOLE_ELEMENTS


@lru_cache(maxsize=4)
def _small_inputs(path: str, target: Target) -> tuple[Any, ...]:
    task = open_task(path, target)
    with standin.pretend_gpu(target, "cpu"):
        return tuple(task.build(find_smallest_shape(task), 0, "cpu").inputs)
