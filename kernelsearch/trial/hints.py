"""Describes a candidate's launches: for hints, for the static model, and by a niche for strategies (`map_elites`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from kernelsearch.compile.build import Binary
from kernelsearch.compile.code import mean_width
from kernelsearch.core.types import (
    LAUNCH_OPTIONS,
    Evidence,
    LaunchFact,
    Measurement,
    TaskFacts,
    content_digest,
)
from kernelsearch.kernel.launch import BoundLaunch
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.hints.findings import LauncherCall
from kernelsearch.measure.static_model.counts import LaunchCounts
from kernelsearch.measure.static_model.device_launch import DeviceLaunch
from kernelsearch.measure.static_model.occupancy import REGISTER_GRANULE, SHARED_RESERVED, BinaryResources
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
            stages = int(step.options.get("num_stages") or 3)
            machine = BinaryResources(b.num_warps, b.registers, b.stack_bytes, b.shared, b.mix, stages)
            counted = counts[len(launches)] if len(launches) < len(counts) else None
            args = one.plan.describe_arguments(step, fact)
            launches.append(
                DeviceLaunch(step.function, machine, b.code, step.grid, args, target, dict(step.options), counted)
            )
    return tuple(launches)


def describe_niche(launches: Iterable[DeviceLaunch]) -> dict[str, int | str]:
    """A few small numbers about a candidate's behaviour, coarse enough that small changes stay in the niche.

    Of several shapes and launches the one that moves most bytes counts. bytes: log2 of the distinct bytes that all
    launches move, in steps of a quarter; passes: bytes loaded and stored over distinct bytes, in steps of a half, at
    most 8; tile: log2 of the elements of the largest tile, in steps of 2; parallelism: log2 of the warps that an SM
    runs at once, in steps of 1; limiter: what keeps it from running more: programs (there are no more), warps,
    registers, shared.
    """
    every = list(launches)
    if not every:
        return {}
    main = max(every, key=lambda one: one.traffic)
    moved, distinct = sum(one.traffic for one in every), sum(one.footprint for one in every)
    tiles = [math.prod(a.shape) for a in main.main_accesses]
    return {
        "bytes": round(4 * _log2(distinct)) if math.isfinite(distinct) else -1,
        "passes": min(16, round(2 * moved / distinct)) if 0 < distinct < math.inf else 0,
        "tile": round(_log2(max(tiles, default=1)) / 2),
        "parallelism": round(_log2(main.resident * main.machine.num_warps)),
        "limiter": _find_limiter(main),
    }


def describe_resources(call: LauncherCall) -> list[dict[str, int | float | str]]:
    """The machine resources that each launch of one launcher call uses, for people and models."""
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
        }
        for one in call.launches
    ]


def _find_limiter(launched: DeviceLaunch) -> str:
    target, machine = launched.target, launched.machine
    if launched.programs < launched.occupancy * target.num_sms:
        return "programs"
    per_warp = -(-max(16, machine.registers) * 32 // REGISTER_GRANULE) * REGISTER_GRANULE
    room = {
        "registers": target.registers_per_sm / (per_warp * machine.num_warps),
        "shared": target.shared_per_sm / (machine.shared + SHARED_RESERVED),
        "warps": target.warps_per_sm / machine.num_warps,
    }
    return min(room, key=lambda name: room[name])


def _log2(value: float) -> float:
    return math.log2(max(1.0, value))
