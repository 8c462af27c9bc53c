"""Hints: one to three findings about a candidate, each with its bottleneck, its evidence and one suggested change.

Detectors (`diagnosis`) look for one fault each; faults below a tenth of the time are dropped. A kernel without faults
gets one hint that names the resource that limits it. A measured time overrules the arithmetic: no fault can cost more
than the difference between the time and the roofline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kernelsearch.core.formats import format_bytes, format_time
from kernelsearch.core.types import Hint
from kernelsearch.measure.hints.changes import MEMORY, NOT_EDITS, Finding, make_finding, word_of
from kernelsearch.measure.hints.detectors import DETECTORS, list_faster_arithmetic
from kernelsearch.measure.static_model.device_launch import DeviceLaunch

WORTH = 0.1
"""The least share of the time for a fault to be reported."""
SMALL = 0.03
"""The least share where nothing larger explains a time far from the roofline."""
MOST = 3
FAR = 0.7
"""Below this share of the roofline a kernel is not called as fast as its bytes allow."""
FEW_BYTES = 4096
"""Bytes of a program that moves too few to be worth its start: two loads of 16 bytes for each of 128 threads."""
LIMITS = {
    "memory bandwidth": "Limited by memory",
    "tensor core": "Limited by matrix units",
    "issue": "Limited by arithmetic",
}
"""The rule's name for the resource that takes longest where no fault is found."""
GLUON = "gluon_"
"""What the names of edits begin with that write a kernel in Gluon."""
LARGE_PRODUCT = 128 * 64
"""From this tile size (elements of the product) on, feeding the matrix units matters, no longer the tile's size."""
MEASURED_LAUNCH_US = 1.0
"""The least time that a launch adds to a measured event time behind a full queue."""


@dataclass(frozen=True)
class LauncherCall:
    """One launcher call at one shape: its launches in order, and its time if there is one (measured, or estimated).

    applies says of a function of the kernel whether an edit makes anything of it; tiles are the names in its config
    that set tile sizes, None where they are not known.
    """

    shape: str
    launches: tuple[DeviceLaunch, ...]
    time_us: float | None = None
    measured: bool = False
    applies: Callable[[str, str], bool] = field(default=lambda function, edit: True, compare=False)
    tiles: tuple[str, ...] | None = None

    @property
    def roofline_us(self) -> float:
        return sum(launch.roofline_us for launch in self.launches)


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
    """The findings of one call, worst first: its faults, else the resource that limits it (with nothing lost).

    What a kernel in Gluon moves is not read from its code: it has faults only.
    """
    is_known = all(one.code.accesses for one in call.launches)
    start = find_launch_bound(call) if is_known else None
    if start is not None:
        return (start,)
    limit, whole = _gap_of(call), sum(map(weight_of, call.launches))
    faults = [
        settle_advice(call, launch, fault, min(fault.lost * (weight_of(launch) / whole), limit))
        for launch in call.launches
        for detect in DETECTORS
        if (fault := detect(launch)) is not None
    ]
    if again := find_reread(call):
        faults.append(replace(again, hint=replace(again.hint, lost=min(again.lost, limit))))
    faults.sort(key=lambda f: -f.lost)
    worth = tuple(f for f in faults if f.lost >= WORTH)
    if worth or not is_known:
        return _cut_gains(call, worth)
    far = call.time_us is not None and call.roofline_us < FAR * call.time_us
    if far and (small := tuple(f for f in faults if f.lost >= SMALL)):
        first = small[0].hint
        rest = f"{first.why} Such faults explain only a part of its distance from the roofline."
        return _cut_gains(call, (Finding(replace(first, why=rest)), *small[1:]))
    main = max(call.launches, key=weight_of)
    alone = replace(call, launches=(main,))  # what limits the call is said of all its launches
    binding = find_binding_resource(call, main)
    found = settle_advice(alone, main, binding, 0.0)
    if not found.hint.suggestion.startswith(GLUON):
        return (found,)
    others = [text for text in binding.others if not text.startswith(GLUON)]  # the way in Triton is named too
    second = Finding(replace(binding.hint, suggestion=others[0]), tuple(others[1:]))
    return (found, settle_advice(alone, main, second, 0.0))


def _cut_gains(call: LauncherCall, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The findings with no larger gain than the roofline leaves of an estimated time, which is said beside them."""
    if call.measured or not call.time_us:
        return found
    most = max(0.0, 1 - call.roofline_us / call.time_us)
    return tuple(replace(f, hint=replace(f.hint, lost=min(f.lost, most))) for f in found)


def settle_advice(call: LauncherCall, launch: DeviceLaunch, finding: Finding, lost: float) -> Finding:
    """The finding with its share of the call, its launch, and its first suggestion that can be followed there."""
    texts = (finding.hint.suggestion, *finding.others)
    words = ((text.partition(":")[0], text) for text in texts)
    chosen = next(text for word, text in words if word in NOT_EDITS or call.applies(launch.function, word))
    if chosen.startswith("tile size: ") and call.tiles is not None:
        named = f"{chosen} (here by {', '.join(call.tiles)})"
        chosen = named if call.tiles else "none: the launcher sets the tile: " + chosen.partition(": ")[2]
    why = finding.hint.why
    assuming = finding.hint.assuming
    if not call.measured and call.time_us and lost > 1 - call.roofline_us / call.time_us:
        assuming += "; the estimated time does not contain it all"
    if len(call.launches) > 1:
        number = next(n for n, one in enumerate(call.launches, 1) if one is launch)
        why = f"Launch {number} of {len(call.launches)}, {launch.function}: {why}"
    return Finding(replace(finding.hint, suggestion=chosen, lost=lost, why=why, assuming=assuming))


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
    instead = (
        "do the work in one launch" if len(call.launches) > 1 else "give it more work, or fuse it with its neighbours"
    )
    evidence = {"launch_us": overhead, "work_us": work, "launches": len(call.launches)}
    lost, free = overhead / (overhead + work), "nothing of the start is left"
    why = f"To start its kernels takes about {format_time(overhead)}; their work takes {format_time(work)}."
    return make_finding(lost, "launch", "Launch overhead", why, f"none: {instead}", assuming=free, **evidence)


def find_reread(call: LauncherCall) -> Finding | None:
    """The largest tensor that launches of several functions load under the same name, if L2 cannot keep it."""
    readers: dict[tuple[str, object], dict[str, DeviceLaunch]] = {}
    for launch in call.launches:
        for base in {a.base for a in launch.main_loads}:
            readers.setdefault((base, launch.args.get(base)), {})[launch.function] = launch
    again = [(one.tensor_bytes_of(base), base, by) for (base, _), by in readers.items() for one in by.values()]
    again = [found for found in again if len(found[2]) > 1 and math.isfinite(found[0])]
    size, base, by = max(again, key=lambda found: found[0], default=(0.0, "", {}))
    if not by or size < next(iter(by.values())).target.l2_bytes:
        return None
    extra, total = size * (len(by) - 1), sum(one.footprint for one in call.launches)
    why = f"{' and '.join(by)} each load {base}, {format_bytes(size)}, which L2 does not keep from one to the next."
    advice = "none: do it in one kernel that loads it once, by sums that can be taken together"
    assuming = f"it is the same tensor and {MEMORY}"
    evidence = {"launches": len(by), "read_again_gb": extra / 1e9}
    return make_finding(
        extra / total, "memory bandwidth", "Read by several kernels", why, advice, assuming=assuming, **evidence
    )


def find_binding_resource(call: LauncherCall, launch: DeviceLaunch) -> Finding:
    """The resource that takes longest without faults, and how near the call is to its time."""
    roofline = call.roofline_us
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
        what = f"The {format_bytes(evidence['moved_gb'] * 1e9)} that must move"
        advice = ["none: move fewer bytes; no launch moves one twice"]
        if again and launch.code.dots:
            advice = ["grouped_order", "tile size: larger tiles of the product, which load their operands less often"]
        elif again and _shared_bytes_of(launch) > 0.5 * launch.footprint:
            advice = [
                f"{w}: several rows a program, so that what all share is loaded once" for w in ("rows_2d", "none")
            ]
        elif call.time_us and roofline < FAR * call.time_us:
            advice = ["tile size: another one, and other num_warps: no rule explains its distance from the roofline"]
            each = moved_bytes_of(launch) / launch.programs
            if each < FEW_BYTES and not any(a.loops for a in launch.main_accesses):
                advice.insert(0, f"rows_2d: several rows a program, which moves only {format_bytes(each)}")
    elif name == "tensor core":
        evidence["tflop"] = sum(one.flops for one in call.launches) / 1e12
        what = f"Its {evidence['tflop']:.3g} TFLOP of matrix products"
        advice = ["tile size: larger tiles and other num_warps and num_stages feed the matrix units better"]
        if near:
            advice = ["none: do fewer products; it runs at the rate of the matrix units"]
        elif _is_fed_by_threads(launch):
            advice[:0] = ["gluon_product", "gluon_attention", "streamed_product", "tensor_descriptor"]
    else:
        evidence["issue_us"] = times["issue"]
        what = f"Its arithmetic takes {format_time(times['issue'])}; its bytes or products"
        words = ["gluon_attention"] * bool(launch.code.dots) + list_faster_arithmetic(launch)
        advice = [*words, "none: do less arithmetic, which takes longer than its bytes"]
    why = f"{what} take {format_time(roofline)} at the machine's full rate"
    if call.time_us:
        kind = "measured" if call.measured else "estimated"
        why += f", {100 * roofline / call.time_us:.0f} % of the {kind} {format_time(call.time_us)}"
    return make_finding(0.0, name, LIMITS[name], f"{why}.", *advice, assuming=MEMORY, **evidence)


def _shared_bytes_of(launch: DeviceLaunch) -> float:
    """Bytes that accesses load beyond their tensor's size: several programs load the same data."""
    loads = (a for a in launch.code.accesses if a.kind == "load")
    return sum(max(0.0, launch.moved_bytes_of(a) - launch.tensor_bytes_of(a.base)) for a in loads)


def _is_fed_by_threads(launch: DeviceLaunch) -> bool:
    """Whether large tiles of operands are loaded through pointers on a target with a copy engine for tiles."""
    large = any(d.m * d.n >= LARGE_PRODUCT for d in launch.code.dots)
    return large and launch.target.has_copy_engine and not any(a.descriptor for a in launch.code.accesses)


def moved_bytes_of(launch: DeviceLaunch) -> float:
    """Bytes to and from memory: those that the hardware counted, else those that must move."""
    return launch.counters.dram_bytes if launch.counters is not None else launch.footprint


def _gap_of(call: LauncherCall) -> float:
    """The share of a measured time above the roofline; 1 without a measurement."""
    if not call.measured or not call.time_us:
        return 1.0
    roofline = call.roofline_us + MEASURED_LAUNCH_US * len(call.launches)
    return max(0.0, 1 - roofline / call.time_us)
