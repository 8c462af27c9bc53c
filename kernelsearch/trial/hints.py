"""Describes a candidate's launches for hints and for the static model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from kernelsearch.compile.build import Binary
from kernelsearch.compile.code import mean_width
from kernelsearch.core.types import LAUNCH_OPTIONS, Evidence, LaunchFact, Measurement, TaskFacts, content_digest
from kernelsearch.kernel.launch import BoundLaunch
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.hints.digest import digest_launch
from kernelsearch.measure.hints.findings import LauncherCall
from kernelsearch.measure.static_model.counts import LaunchCounts
from kernelsearch.measure.static_model.device_launch import DeviceLaunch
from kernelsearch.measure.static_model.occupancy import BinaryResources, find_room
from kernelsearch.measure.static_model.rates import calibrate_target
from kernelsearch.propose.edits import edit_named
from kernelsearch.trial.bound_candidate import BoundCandidate
from kernelsearch.trial.shared_state import Once
from kernelsearch.worker.messages import jobs


def describe_calls(
    candidate: BoundCandidate,
    binaries: Mapping[str, Binary],
    shapes: tuple[str, ...],
    once: Once,
    measurement: Measurement | None = None,
    counts: Mapping[str, tuple[LaunchCounts, ...]] | None = None,
) -> tuple[LauncherCall, ...]:
    """The launcher's call at each of these shapes, as `measure.hints` reads it; once caches the edits' answers."""
    target = calibrate_target(candidate.bench.target, candidate.bench.ceilings)
    measured = measurement is not None and measurement.evidence is not Evidence.ESTIMATED
    tiles = tuple(n for n, value in candidate.config.items() if _is_tile(n, value))
    applies, calls = ask_edits(candidate.kernel, candidate.bench.facts, once), []
    for shape in shapes:
        launches = launches_of(candidate.launches(shape), binaries, target, (counts or {}).get(shape, ()))
        time_us = measurement.time_us(shape) if measurement else None
        calls.append(LauncherCall(shape, launches, time_us, measured, applies, tiles))
    return tuple(calls)


def _is_tile(name: str, value: object) -> bool:
    plain = name.rpartition(".")[2]
    return plain not in LAUNCH_OPTIONS and isinstance(value, int) and not isinstance(value, bool) and value > 1


def ask_edits(kernel: Kernel, facts: TaskFacts, once: Once) -> Callable[[str, str], bool]:
    """A function that says whether an edit applies to a launched function, by their names; once caches the answers."""
    digest = content_digest(kernel.render())

    def applies(function: str, edit: str) -> bool:
        known = edit_named(edit)
        if known is None or function not in kernel.entries:
            return False
        return bool(once(f"{edit} of {function}/{digest}", lambda: known.applies(kernel, function, facts)))

    return applies


def launches_of(
    bound: list[tuple[LaunchFact, BoundLaunch]],
    binaries: Mapping[str, Binary],
    target: Target,
    counts: tuple[LaunchCounts, ...] = (),
) -> tuple[DeviceLaunch, ...]:
    """Each device launch of one launcher call, in order; those of empty grids do not happen."""
    launches: list[DeviceLaunch] = []
    for fact, one in bound:
        for step, spec in zip(one.plan.steps, one.specialise_steps(fact), strict=True):
            if 0 in step.grid:
                continue
            b = binaries[jobs.spec_key(spec, one.of_seed)]
            stages = int(step.options.get("num_stages") or target.num_stages)
            machine = BinaryResources(b.num_warps, b.registers, b.stack_bytes, b.shared, b.mix, stages)
            counted = counts[len(launches)] if len(launches) < len(counts) else None
            args = cast(Mapping[str, Any], one.plan.describe_arguments(step, fact))
            launches.append(
                DeviceLaunch(step.function, machine, b.code, step.grid, args, target, dict(step.options), counted)
            )
    return tuple(launches)


def describe_resources(call: LauncherCall) -> list[dict[str, Any]]:
    """What each launch of one launcher call takes of the machine, and where its time goes, for people and models."""
    return [
        {
            "kernel": one.function,
            "programs": one.programs,
            "programs_per_sm": one.occupancy,
            "num_warps": one.machine.num_warps,
            "registers": one.machine.registers,
            "stack_bytes": one.machine.stack_bytes,
            "shared_bytes": one.machine.shared,
            "load_bytes": round(mean_width(one.machine.mix.loads), 1),
            "limiter": _find_limiter(one),
            **digest_launch(one),
        }
        for one in call.launches
    ]


def _find_limiter(launched: DeviceLaunch) -> str:
    target, machine = launched.target, launched.machine
    if launched.programs < launched.occupancy * target.num_sms:
        return "programs"
    room = find_room(machine, target)
    return min(("registers", "shared", "warps"), key=lambda name: room[name])
