"""The niche of a candidate: a few small numbers about its behaviour that its text does not show.

For strategies that keep unlike kernels (`map_elites`). It follows from the binaries and the launches; of several shapes
and launches the one that moves most bytes counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from kernelsearch.measure.static_model.device_launch import DeviceLaunch
from kernelsearch.measure.static_model.occupancy import REGISTER_GRANULE, SHARED_RESERVED


def describe_niche(launches: Iterable[DeviceLaunch]) -> dict[str, int | str]:
    """The niche: one value per axis, coarse enough that small changes stay in it.

    bytes: log2 of the distinct bytes that all launches move, in steps of a quarter; passes: bytes loaded and stored
    over distinct bytes, in steps of a half, at most 8; tile: log2 of the elements of the largest tile, in steps of 2;
    parallelism: log2 of the warps that an SM runs at once, in steps of 1; limiter: what keeps it from running more:
    programs (there are no more), warps, registers, shared.
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
        "limiter": _limiter(main),
    }


def _limiter(launched: DeviceLaunch) -> str:
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
