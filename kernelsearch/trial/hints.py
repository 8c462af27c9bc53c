"""Describes a candidate's launches for hints and the static model."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernelsearch.compile.build import Binary
from kernelsearch.core.types import ArgFact, Evidence, LaunchFact, Measurement, TensorFact
from kernelsearch.kernel.launch import BoundLaunch, LaunchStep, Passed, Scratch
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.hints.findings import LauncherCall
from kernelsearch.measure.static_model.counts import LaunchCounts
from kernelsearch.measure.static_model.device_launch import DeviceLaunch
from kernelsearch.measure.static_model.occupancy import BinaryResources
from kernelsearch.measure.static_model.rates import calibrate_target
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.worker.messages import jobs


def describe_calls(
    candidate: BoundCandidate,
    binaries: Mapping[str, Binary],
    shapes: tuple[str, ...],
    measurement: Measurement | None = None,
    counts: Mapping[str, tuple[LaunchCounts, ...]] | None = None,
) -> tuple[LauncherCall, ...]:
    """The launcher's call at each of these shapes, as `measure.hints` reads it."""
    target = calibrate_target(candidate.bench.target, candidate.bench.ceilings)
    measured = measurement is not None and measurement.evidence is not Evidence.ESTIMATED
    return tuple(
        LauncherCall(
            shape,
            launches_of(candidate.launches(shape), binaries, target, (counts or {}).get(shape, ())),
            measurement.time_us(shape) if measurement else None,
            measured,
        )
        for shape in shapes
    )


def launches_of(
    bound: list[tuple[LaunchFact, BoundLaunch]],
    binaries: Mapping[str, Binary],
    target: Target,
    counts: tuple[LaunchCounts, ...] = (),
) -> tuple[DeviceLaunch, ...]:
    """Each device launch of one launcher call, in order."""
    launches: list[DeviceLaunch] = []
    for fact, one in bound:
        for step, spec in zip(one.plan.steps, one.specialise_steps(fact), strict=True):
            b = binaries[jobs.spec_key(spec, one.of_seed)]
            stages = int(step.options.get("num_stages") or 3)
            machine = BinaryResources(b.num_warps, b.registers, b.stack_bytes, b.shared, b.mix, stages)
            counted = counts[len(launches)] if len(launches) < len(counts) else None
            args = _describe_arguments(fact, one, step)
            launches.append(
                DeviceLaunch(step.function, machine, b.code, step.grid, args, target, dict(step.options), counted)
            )
    return tuple(launches)


def _describe_arguments(fact: LaunchFact, bound: BoundLaunch, step: LaunchStep) -> dict[str, ArgFact]:
    facts: dict[str, ArgFact] = {}
    for name, arg in step.args.items():
        if isinstance(arg, Passed):
            facts[name] = fact.args.get(arg.name)
        elif isinstance(arg, Scratch):
            buffer = bound.plan.scratch[arg.name]
            strides = tuple(math.prod(buffer.shape[axis + 1 :]) for axis in range(len(buffer.shape)))
            facts[name] = TensorFact(buffer.dtype, buffer.shape, strides)
        else:
            facts[name] = arg
    return facts
