"""The resources that a launch uses, in bytes, instructions and dependent steps, without any fitted constant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from kernelsearch.compile.code import Access, Block
from kernelsearch.measure.static_model.device_launch import UNROLLED, UNROLLED_ELEMENTS, DeviceLaunch

MAX_TRIPS = 1e7
SMALL = 1 << 15
"""The largest tensor in bytes that stays in L1 between its uses."""
ADDRESS_REGISTERS = 24
"""Registers of a thread for addresses, bounds and counters."""
LEAST_FREE = 32.0
"""Bytes of loads that a thread always has in flight."""


@dataclass(frozen=True)
class LoopUsage:
    """One loop of one program: its number of trips, and the work of one iteration per thread.

    counts and chain are those of `code.Block`; loaded is in bytes per iteration and program; fresh is the share of the
    loads that come from DRAM if L2 keeps everything; ahead is `Block.ahead`; batches is the number of times that an
    iteration waits for its loads one after the other: more than one where registers cannot hold them all, less where
    iterations start together.
    """

    trips: float
    counts: Mapping[str, float]
    chain: Mapping[str, float]
    loaded: float
    fresh: float
    ahead: int = -1
    batches: float = 1.0


@dataclass(frozen=True)
class Usage:
    """A launch: programs, warps per program, programs per SM, and bytes of all programs.

    footprint counts distinct bytes; requested counts the whole sectors of all loads and stores; again are the bytes
    that programs load a second time themselves; live is the data of resident programs; spilled is in bytes per program;
    ways is the number of turns of shared memory accesses over the least for their bytes; tensor_tflops is the rate of
    the products' operand type; atomics are elements of one program; depth is the number of iterations of the busiest
    loading loop in flight together; meet says that the warps of a program wait for each other.
    """

    programs: int
    warps: int
    occupancy: int
    footprint: float
    requested: float
    again: float
    live: float
    spilled: float
    ways: float
    macs: float
    tensor_tflops: float
    steps: tuple[LoopUsage, ...]
    atomics: float
    depth: int
    meet: bool


def compute_usage(launch: DeviceLaunch) -> Usage:
    """The usage of a launch; counts from sampled programs correct its bytes, where there are any."""
    warps, threads = launch.machine.num_warps, launch.target.warp_size * launch.machine.num_warps
    accesses = launch.code.accesses
    moved_bytes = {id(a): launch.moved_bytes_of(a) for a in accesses}
    loads = sum(moved_bytes[id(a)] for a in accesses if a.kind == "load")
    stores = sum(moved_bytes[id(a)] for a in accesses if a.kind != "load")
    sectors = sum(_bytes_beyond_l1(launch, a, moved_bytes[id(a)]) * launch.sector_ratio_of(a) for a in accesses)
    if launch.counts is not None and loads:
        known = launch.counts
        sectors *= (known.load_bytes + known.store_bytes) / max(1.0, loads + stores)
        loads, stores = known.load_bytes, known.store_bytes
    footprint = min(launch.footprint, loads + stores)
    blocks = launch.code.blocks or (Block((), launch.machine.mix.counts),)
    steps = _make_steps(launch, blocks, loads, max(0.0, footprint - stores), threads)
    resident = min(launch.programs, launch.occupancy * launch.target.num_sms)
    spilled = 2.0 * launch.machine.stack_bytes * threads * max((min(8.0, s.trips) for s in steps), default=1.0)
    return Usage(
        launch.programs,
        warps,
        launch.occupancy,
        footprint,
        sectors,
        _bytes_loaded_again(launch, moved_bytes),
        footprint / launch.programs * resident,
        spilled,
        _ways_of(launch),
        launch.flops / 2.0,
        launch.rate_tflops(launch.code.dots) if launch.code.dots else launch.target.tensor_tflops,
        steps,
        sum(moved_bytes[id(a)] / a.width for a in accesses if a.kind == "atomic") / launch.programs,
        max(1, 1 + max(steps, key=lambda s: s.loaded * s.trips).ahead),
        any(s.counts.get("barrier") for s in steps),
    )


def _make_steps(
    launch: DeviceLaunch, blocks: tuple[Block, ...], loads: float, unique: float, threads: int
) -> tuple[LoopUsage, ...]:
    trips = [min(MAX_TRIPS, launch.trips_of(b.loops)) for b in blocks]
    raw = [b.counts.get("load_bytes", 0) * n * threads * launch.programs for b, n in zip(blocks, trips, strict=True)]
    scale = min(1.0, loads / sum(raw)) if sum(raw) else 0.0  # masked lanes load nothing
    left, steps = unique, []
    for block, n, amount in zip(blocks, trips, raw, strict=True):
        amount *= scale
        fresh = min(1.0, left / amount) if amount else 0.0
        left = max(0.0, left - amount)
        each = amount / (max(1e-9, n) * launch.programs)
        steps.append(LoopUsage(n, block.counts, block.chain, each, fresh, block.ahead, _batches_of(launch, block)))
    return tuple(steps)


def _bytes_beyond_l1(launch: DeviceLaunch, access: Access, moved_bytes: float) -> float:
    """The bytes of an access that come from L2: a small tensor stays in each SM's L1 once it is loaded."""
    size = launch.tensor_bytes_of(access.base)
    if access.kind != "load" or size > SMALL:
        return moved_bytes
    return min(moved_bytes, size * launch.target.num_sms)


def _bytes_loaded_again(launch: DeviceLaunch, moved_bytes: Mapping[int, float]) -> float:
    """Bytes of loads from addresses that the same program has loaded before.

    Loops over one axis in steps of a tile's length have known ends; the length that several of them cover together,
    less the distance from the first start to the last end, is loaded again.
    """
    total = 0.0
    loads = [a for a in launch.code.accesses if a.kind == "load"]
    for base in {a.base for a in loads}:
        covered, ends, moved, flat = 0.0, [], 0.0, set()
        for access in (a for a in loads if a.base == base):
            if not access.loops:
                total += moved_bytes[id(access)] * (access.address in flat)
                flat.add(access.address)
                continue
            first, last, step = (launch.evaluate(v) for v in vars(access.loops[-1]).values())
            length = max((n for n in access.shape if step and step % n == 0), default=0)
            if length > 1 and first is not None and last is not None:
                covered += launch.trips_of(access.loops[-1:]) * length
                ends += [first, last]
                moved += moved_bytes[id(access)]
        span = max(ends) - min(ends) if ends else 0
        if span > 0 and covered > 1.2 * span:
            total += moved * (1.0 - span / covered)
    return total


def _batches_of(launch: DeviceLaunch, block: Block) -> float:
    """See `LoopUsage.batches`."""
    each = block.counts.get("load_bytes", 0)
    if block.ahead >= 0 or not each:
        return 1.0
    free = max(LEAST_FREE, 4.0 * (launch.machine.registers - ADDRESS_REGISTERS) - block.carried)
    if each > free:
        return each / free
    if not block.loops or any(block.counts.get(kind) for kind in ("barrier", "shuffle", "store")):
        return 1.0
    narrowest = min((a.width for a in launch.main_loads), default=4)
    elements = max(1, math.ceil(each / max(1, narrowest)))
    return 1.0 / max(1.0, min(UNROLLED, UNROLLED_ELEMENTS // elements, free / each))


def _ways_of(launch: DeviceLaunch) -> float:
    sizes = [e.size_bytes * launch.trips_of(e.loops) for e in launch.code.exchanges]
    if not sum(sizes):
        return 1.0
    return sum(e.ways * n for e, n in zip(launch.code.exchanges, sizes, strict=True)) / sum(sizes)
