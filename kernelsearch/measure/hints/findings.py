"""Hints: one to three findings about a candidate, each with its bottleneck, its evidence and one suggested change.

Faults are looked for one by one (`diagnosis`); what costs less than a tenth of the time is not said. A kernel without
faults gets one hint that names the resource that binds it. A measured time has the last word: no fault can cost more
than what lies between the time and the roofline.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelsearch.core.types import Hint
from kernelsearch.measure.hints.diagnosis import DETECTORS, Finding, finding, tidy
from kernelsearch.measure.static_model.launched import Launched

WORTH = 0.1
"""The share of the time from which a fault is said."""
MOST = 3
FAR = 0.7
"""Below this share of the roofline it would be wrong to say that a kernel is as fast as its bytes allow."""
LARGE_PRODUCT = 128 * 64
"""Elements of a product's tile from which feeding the matrix units is the matter, and no longer the tile's size."""
MEASURED_LAUNCH_US = 1.0
"""What a launch adds to a measured event time behind a full queue, at least: such times count as the launch's own."""


@dataclass(frozen=True)
class Call:
    """One launcher call at one shape: its launches in order, and its time if there is one (measured, or estimated)."""

    shape: str
    launches: tuple[Launched, ...]
    time_us: float | None = None
    measured: bool = False


def hints(calls: Sequence[Call]) -> tuple[Hint, ...]:
    """The most important findings over all shapes, one for each bottleneck and change."""
    if not calls:
        return ()
    kept: dict[tuple[str, str], list[Finding]] = {}
    for call in calls:
        for found in diagnose(call):
            kept.setdefault((found.hint.bottleneck, found.hint.suggestion.partition(":")[0]), []).append(found)
    ranked = sorted(kept.values(), key=lambda group: -sum(f.lost for f in group))
    faults = [g for g in ranked if max(f.lost for f in g) > 0]
    chosen = (faults or ranked)[:MOST]
    return tuple(max(group, key=lambda f: f.lost).hint for group in chosen)


def diagnose(call: Call) -> tuple[Finding, ...]:
    """The findings of one call, worst first: the faults, else what binds it (with nothing lost)."""
    heaviest = max(call.launches, key=weight)
    start = launch_bound(call)
    if start is not None:
        return (start,)
    limit = _gap(call)
    found: list[Finding] = []
    whole = sum(map(weight, call.launches))
    for launch in call.launches:
        share = weight(launch) / whole
        for detect in DETECTORS:
            one = detect(launch)
            if one is not None:
                found.append(replace(one, lost=min(one.lost * share, limit)))
    worth = sorted((f for f in found if f.lost >= WORTH), key=lambda f: -f.lost)
    return tuple(worth) or (binding(call, heaviest),)


def weight(launch: Launched) -> float:
    """A launch's share in its call, in microseconds: what it takes at best, and its chain of loads."""
    return max(launch.expected_us, launch.chain_us)


def launch_bound(call: Call) -> Finding | None:
    """The finding that the start of the launches costs more than what they do."""
    overhead = sum(launch.target.launch_us for launch in call.launches)
    work = sum(max(launch.expected_us, launch.chain_us) for launch in call.launches)
    if work >= overhead:
        return None
    if call.measured and call.time_us is not None and call.time_us > 4 * overhead + work:
        return None  # it takes longer than starting it can explain
    instead = "do it in one launch" if len(call.launches) > 1 else "give it more work, or fuse it with its neighbours"
    return finding(
        overhead / (overhead + work),
        "launch",
        "none",
        f"no edit does it: {instead}",
        launch_us=overhead,
        work_us=work,
        launches=len(call.launches),
    )


def binding(call: Call, launch: Launched) -> Finding:
    """The resource that takes longest when nothing is wrong, with how near the call is to it."""
    roofline = sum(one.roofline_us for one in call.launches)
    times = {
        "memory bandwidth": launch.dram_us,
        "tensor core": launch.tensor_us,
        "issue": max(launch.issue_us, launch.special_us),
    }
    name = max(times, key=lambda resource: times[resource])
    evidence = {"roofline_us": roofline}
    if call.time_us:
        evidence["time_us" if call.measured else "estimated_time_us"] = call.time_us
        evidence["percent_of_roofline"] = 100 * roofline / call.time_us
    near = call.measured and call.time_us is not None and roofline > 0.85 * call.time_us
    if name == "memory bandwidth":
        evidence["moved_gb"] = sum(map(moved_bytes, call.launches)) / 1e9
        sentence = "it moves no byte twice; only fewer bytes make it faster"
        if not near and launch.traffic > 1.5 * launch.footprint:
            if launch.code.dots:
                return finding(0.0, name, "grouped_order", **evidence)
            if _shared_bytes(launch) > 0.5 * launch.footprint:
                sentence = "several rows a program, so that what all rows share is loaded once"
                return finding(0.0, name, "rows_2d", sentence, **evidence)
        if call.time_us and roofline < FAR * call.time_us:
            sentence = (
                "another one, and other num_warps: nothing in the binary explains why it is so far from the roofline"
            )
            return finding(0.0, name, "tile size", sentence, **evidence)
    elif name == "tensor core":
        evidence["tflop"] = sum(one.flops for one in call.launches) / 1e12
        if not near and _fed_by_threads(launch):
            return finding(0.0, name, "tensor_descriptor", **evidence)
        if not near:
            sentence = "larger tiles and other num_warps and num_stages feed the matrix units better"
            return finding(0.0, name, "tile size", sentence, **evidence)
        sentence = "it runs at the rate of the matrix units"
    else:
        evidence["issue_us"] = times["issue"]
        kinds = {w.kind for w in launch.code.work}
        if kinds & {"divide", "special"}:
            return finding(0.0, name, "reciprocal" if "divide" in kinds else "exp2", **evidence)
        sentence = "its arithmetic takes longer than its bytes; only less of it makes it faster"
    return finding(0.0, name, "none", sentence, **evidence)


def _shared_bytes(launch: Launched) -> float:
    """Bytes that programs load beyond a tensor's size, place by place: what one has loaded, others load too."""
    loads = (a for a in launch.code.accesses if a.kind == "load")
    return sum(max(0.0, launch.moved(a) - launch.tensor_bytes(a.base)) for a in loads)


def _fed_by_threads(launch: Launched) -> bool:
    """Whether large tiles of operands are loaded through pointers, where the target has a copy engine for tiles."""
    large = any(d.m * d.n >= LARGE_PRODUCT for d in launch.code.dots)
    return large and launch.target.capability >= 90 and not any(a.descriptor for a in launch.code.accesses)


def moved_bytes(launch: Launched) -> float:
    """Bytes to and from memory: as counted by the hardware, else those that must move."""
    return launch.counters.dram_bytes if launch.counters is not None else launch.footprint


def _gap(call: Call) -> float:
    """The share of a measured time that is not the roofline's; 1 where nothing was measured."""
    if not call.measured or not call.time_us:
        return 1.0
    roofline = sum(one.roofline_us for one in call.launches) + MEASURED_LAUNCH_US * len(call.launches)
    return max(0.0, 1 - roofline / call.time_us)


def described(hint: Hint) -> str:
    """One line a hint for people: evidence first, as `name number`, then the suggestion."""
    numbers = ", ".join(f"{name.replace('_', ' ')} {_shown(value)}" for name, value in hint.evidence.items())
    return f"{hint.bottleneck}: {numbers}. {hint.suggestion}"


def _shown(value: float) -> str:
    value = tidy(value)
    if isinstance(value, float) and (value >= 1e6 or (value and abs(value) < 1e-3)) and math.isfinite(value):
        return f"{value:.2e}"
    return f"{value:,}"
