"""Hints: one to three findings about a candidate, each with its bottleneck, its evidence and one suggested change.

Detectors (`diagnosis`) look for one fault each; faults below a tenth of the time are dropped. A kernel without faults
gets one hint that names the resource that limits it. A measured time overrules the arithmetic: no fault can cost more
than the difference between the time and the roofline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kernelsearch.core.types import Hint
from kernelsearch.measure.hints.changes import NOT_EDITS, word_of
from kernelsearch.measure.hints.detectors import DETECTORS, Finding, make_finding
from kernelsearch.measure.static_model.device_launch import DeviceLaunch

WORTH = 0.1
"""The least share of the time for a fault to be reported."""
MOST = 3
FAR = 0.7
"""Below this share of the roofline a kernel is not called as fast as its bytes allow."""
LARGE_PRODUCT = 128 * 64
"""From this tile size (elements of the product) on, feeding the matrix units matters, no longer the tile's size."""
MEASURED_LAUNCH_US = 1.0
"""The least time that a launch adds to a measured event time behind a full queue."""


@dataclass(frozen=True)
class LauncherCall:
    """One launcher call at one shape: its launches in order, and its time if there is one (measured, or estimated).

    applies says of a function of the kernel whether an edit makes anything of it.
    """

    shape: str
    launches: tuple[DeviceLaunch, ...]
    time_us: float | None = None
    measured: bool = False
    applies: Callable[[str, str], bool] = field(default=lambda function, edit: True, compare=False)


def make_hints(calls: Sequence[LauncherCall]) -> tuple[Hint, ...]:
    """The most important findings over all shapes, one for each bottleneck and change."""
    if not calls:
        return ()
    groups: dict[tuple[str, str], list[Finding]] = {}
    for call in calls:
        for one in diagnose(call):
            groups.setdefault((one.hint.bottleneck, word_of(one.hint)), []).append(one)
    ranked = sorted(groups.values(), key=lambda group: -sum(f.lost for f in group))
    faults = [g for g in ranked if max(f.lost for f in g) > 0]
    chosen = (faults or ranked)[:MOST]
    return tuple(max(group, key=lambda f: f.lost).hint for group in chosen)


def diagnose(call: LauncherCall) -> tuple[Finding, ...]:
    """The findings of one call, worst first: its faults, else the resource that limits it (with nothing lost)."""
    start = find_launch_bound(call)
    if start is not None:
        return (start,)
    limit, whole = _gap_of(call), sum(map(weight_of, call.launches))
    faults = [
        replace(settle_advice(call, launch, fault), lost=min(fault.lost * (weight_of(launch) / whole), limit))
        for launch in call.launches
        for detect in DETECTORS
        if (fault := detect(launch)) is not None
    ]
    worth = sorted((f for f in faults if f.lost >= WORTH), key=lambda f: -f.lost)
    if worth:
        return tuple(worth)
    main = max(call.launches, key=weight_of)
    return (settle_advice(call, main, find_binding_resource(call, main)),)


def settle_advice(call: LauncherCall, launch: DeviceLaunch, finding: Finding) -> Finding:
    """The finding with its first suggestion that can be followed: no edit, or one that applies to the launch."""
    for text in (finding.hint.suggestion, *finding.others):
        hint = replace(finding.hint, suggestion=text)
        if word_of(hint) in NOT_EDITS or call.applies(launch.function, word_of(hint)):
            return Finding(finding.lost, hint)
    sentence = finding.hint.suggestion.partition(": ")[2]
    return Finding(finding.lost, replace(finding.hint, suggestion=f"none: no edit does it here: {sentence}"))


def weight_of(launch: DeviceLaunch) -> float:
    """A launch's share in its call, in microseconds: the larger of its expected time and its chain of loads."""
    return max(launch.expected_us, launch.chain_us)


def find_launch_bound(call: LauncherCall) -> Finding | None:
    """The finding that starting the launches costs more than their work, if it does."""
    overhead = sum(launch.target.launch_us for launch in call.launches)
    work = sum(map(weight_of, call.launches))
    if work >= overhead:
        return None
    if call.measured and call.time_us is not None and call.time_us > 4 * overhead + work:
        return None  # it takes longer than starting it can explain
    instead = "do it in one launch" if len(call.launches) > 1 else "give it more work, or fuse it with its neighbours"
    evidence = {"launch_us": overhead, "work_us": work, "launches": len(call.launches)}
    return make_finding(overhead / (overhead + work), "launch", f"none: no edit does it: {instead}", **evidence)


def find_binding_resource(call: LauncherCall, launch: DeviceLaunch) -> Finding:
    """The resource that takes longest without faults, and how near the call is to its time."""
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
        evidence["moved_gb"] = sum(map(moved_bytes_of, call.launches)) / 1e9
        again = not near and launch.traffic > 1.5 * launch.footprint
        advice = "none: it moves no byte twice; only fewer bytes make it faster"
        if again and launch.code.dots:
            advice = "grouped_order"
        elif again and _shared_bytes_of(launch) > 0.5 * launch.footprint:
            advice = "rows_2d: several rows a program, so that what all rows share is loaded once"
        elif call.time_us and roofline < FAR * call.time_us:
            unexplained = "nothing in the binary explains why it is so far from the roofline"
            advice = f"tile size: another one, and other num_warps: {unexplained}"
    elif name == "tensor core":
        evidence["tflop"] = sum(one.flops for one in call.launches) / 1e12
        advice = "tile size: larger tiles and other num_warps and num_stages feed the matrix units better"
        if near:
            advice = "none: it runs at the rate of the matrix units"
        elif _is_fed_by_threads(launch):
            advice = "tensor_descriptor"
    else:
        evidence["issue_us"] = times["issue"]
        kinds = {w.kind for w in launch.code.work}
        advice = "none: its arithmetic takes longer than its bytes; only less of it makes it faster"
        if kinds & {"divide", "special"}:
            advice = "reciprocal" if "divide" in kinds else "exp2"
    return make_finding(0.0, name, advice, **evidence)


def _shared_bytes_of(launch: DeviceLaunch) -> float:
    """Bytes that accesses load beyond their tensor's size: several programs load the same data."""
    loads = (a for a in launch.code.accesses if a.kind == "load")
    return sum(max(0.0, launch.moved_bytes_of(a) - launch.tensor_bytes_of(a.base)) for a in loads)


def _is_fed_by_threads(launch: DeviceLaunch) -> bool:
    """Whether large tiles of operands are loaded through pointers on a target with a copy engine for tiles."""
    large = any(d.m * d.n >= LARGE_PRODUCT for d in launch.code.dots)
    return large and launch.target.capability >= 90 and not any(a.descriptor for a in launch.code.accesses)


def moved_bytes_of(launch: DeviceLaunch) -> float:
    """Bytes to and from memory: those that the hardware counted, else those that must move."""
    return launch.counters.dram_bytes if launch.counters is not None else launch.footprint


def _gap_of(call: LauncherCall) -> float:
    """The share of a measured time above the roofline; 1 without a measurement."""
    if not call.measured or not call.time_us:
        return 1.0
    roofline = sum(one.roofline_us for one in call.launches) + MEASURED_LAUNCH_US * len(call.launches)
    return max(0.0, 1 - roofline / call.time_us)
