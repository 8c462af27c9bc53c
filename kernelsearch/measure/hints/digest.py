"""Where a launch's time goes, per resource and per loop, as a few numbers for a page: never more than it can use."""

from __future__ import annotations

from typing import Any

from kernelsearch.compile.code import Loop
from kernelsearch.measure.static_model.device_launch import LANES_PER_CLOCK, SPECIAL_PER_CLOCK, DeviceLaunch

MOST = 3
"""Resources, and loops, that are named."""
LEAST = 0.05
"""The least share of a loop, or of a resource's time in that of the longest, that is named."""


def digest_launch(launch: DeviceLaunch) -> dict[str, Any]:
    """The resources that take longest (microseconds each alone), the loops by their shares, the counters' waits.

    Empty for code whose accesses cannot be read.
    """
    if not launch.code.accesses:
        return {}
    counters = {"waits": dict(launch.counters.longest_waits)} if launch.counters else {}
    return {"limits_us": _rank_limits(launch), "loops": _describe_loops(launch), **counters}


def _rank_limits(launch: DeviceLaunch) -> dict[str, float]:
    limits = {
        "memory": launch.dram_us,
        "L2": launch.l2_us,
        "matrix units": launch.tensor_us,
        "arithmetic": max(launch.issue_us, launch.special_us),
        "shared memory": launch.shared_memory_us(True),
        "waiting for dependent loads": launch.chain_us,
    }
    ranked = sorted(limits.items(), key=lambda one: -one[1])[:MOST]
    return {name: float(f"{us:.4g}") for name, us in ranked if us > LEAST * ranked[0][1]}


def _describe_loops(launch: DeviceLaunch) -> list[dict[str, Any]]:
    """The bodies of loops that cost most, in the order of the source, without what inner loops do."""
    code = launch.code
    nests = dict.fromkeys(one.loops for one in (*code.accesses, *code.dots, *code.work))
    costs = {nest: _cost_us(launch, nest) for nest in nests}
    total = sum(costs.values())
    shares = {nest: us / total for nest, us in costs.items() if nest and total and us > LEAST * total}
    kept = sorted(shares, key=lambda nest: -shares[nest])[:MOST]
    return [_describe_loop(launch, nest, shares[nest]) for nest in shares if nest in kept]


def _describe_loop(launch: DeviceLaunch, nest: tuple[Loop, ...], share: float) -> dict[str, Any]:
    accesses = [a for a in launch.code.accesses if a.loops == nest]
    return {
        "depth": len(nest),
        "turns": round(launch.trips_of(nest), 1),
        "share": round(share, 3),
        "loads": sorted({a.base for a in accesses if a.kind == "load"}),
        "stores": sorted({a.base for a in accesses if a.kind != "load"}),
        "bytes": round(sum(map(launch.moved_bytes_of, accesses))),
        "flops": round(_count_flops(launch, nest)),
    }


def _cost_us(launch: DeviceLaunch, nest: tuple[Loop, ...]) -> float:
    """The time of what stands right inside these loops, by the resource that takes longest there."""
    target, runs = launch.target, launch.trips_of(nest) * launch.programs
    moved = sum(launch.moved_bytes_of(a) for a in launch.code.accesses if a.loops == nest)
    lanes = {"float": LANES_PER_CLOCK, "special": SPECIAL_PER_CLOCK, "divide": SPECIAL_PER_CLOCK}
    clocks = sum(w.elements / lanes[w.kind] for w in launch.code.work if w.loops == nest) * runs
    dots = [d for d in launch.code.dots if d.loops == nest]
    return max(
        moved / (target.bandwidth_gbps * 1e3),
        clocks / (target.num_sms * target.clock_ghz * 1e3),
        _count_flops(launch, nest) / (launch.rate_tflops(dots) * 1e6),
    )


def _count_flops(launch: DeviceLaunch, nest: tuple[Loop, ...]) -> float:
    runs = launch.trips_of(nest) * launch.programs
    return sum(2.0 * d.m * d.n * d.k for d in launch.code.dots if d.loops == nest) * runs
