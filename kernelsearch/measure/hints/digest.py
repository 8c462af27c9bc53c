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
    code = launch.code
    if not code.accesses:
        return {}
    limits = {"memory": launch.dram_us, "L2": launch.l2_us, "matrix units": launch.tensor_us}
    limits |= {"arithmetic": max(launch.issue_us, launch.special_us), "shared memory": launch.shared_memory_us(True)}
    limits["waiting for dependent loads"] = launch.chain_us
    ranked = sorted(limits.items(), key=lambda one: -one[1])[:MOST]
    nests = [*(a.loops for a in code.accesses), *(d.loops for d in code.dots)]
    costs = {nest: _cost_us(launch, nest) for nest in dict.fromkeys(nests)}
    shares = {nest: us / sum(costs.values()) for nest, us in costs.items() if nest and us > LEAST * sum(costs.values())}
    kept = sorted(shares, key=lambda nest: -shares[nest])[:MOST]
    counted = {"waits": dict(launch.counters.longest_waits)} if launch.counters else {}
    return {
        "limits_us": {name: float(f"{us:.4g}") for name, us in ranked if us > LEAST * ranked[0][1]},
        "loops": [_describe_loop(launch, nest, share) for nest, share in shares.items() if nest in kept],
        **counted,
    }


def _describe_loop(launch: DeviceLaunch, nest: tuple[Loop, ...], share: float) -> dict[str, Any]:
    """A loop's body without what inner loops do: its turns, its share of the launch, what it moves and multiplies."""
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
    work = (w for w in launch.code.work if w.loops == nest)
    clocks = sum(w.elements / (LANES_PER_CLOCK if w.kind == "float" else SPECIAL_PER_CLOCK) for w in work) * runs
    rate = launch.rate_tflops(d for d in launch.code.dots if d.loops == nest)
    busy_us = clocks / (target.num_sms * target.clock_ghz * 1e3)
    return max(moved / (target.bandwidth_gbps * 1e3), busy_us, _count_flops(launch, nest) / (rate * 1e6))


def _count_flops(launch: DeviceLaunch, nest: tuple[Loop, ...]) -> float:
    each = sum(2.0 * d.m * d.n * d.k for d in launch.code.dots if d.loops == nest)
    return each * launch.trips_of(nest) * launch.programs
