"""The static model: how long a launch would take on a target, from the compiled binary and the launch.

Each resource gets a time of its own (DRAM, L2, and on the fullest SM instruction issue, the memory pipe, special
functions, tensor cores, and the dependent chain of one program after the other); the estimate is a high norm of them,
close to the largest. The ingredients are the textbook ones: the roofline (Williams, Waterman and Patterson, 2009),
Little's law for bytes in flight, the CUDA occupancy rules, and warp-level chains of dependent latencies (Hong and Kim,
2009). What is fitted, and how well it ranks kernels that it was not fitted to, is in `constants.py`. Results are
`estimated`, rank candidates, and are never mixed with measured ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelsearch.measure.constants import FITTED, Constants
from kernelsearch.measure.launched import Launched
from kernelsearch.measure.usage import Step, Usage, usage
from kernelsearch.targets import Target

SCHEDULERS = 4
SPECIAL_PER_CLOCK = 16.0
SHARED_BYTES_PER_CLOCK = 128.0
LANES = 32
ITERATIONS = 8
STATIONS = (("dram", "l2", "ingest"), ("issue", "memory", "special", "tensor"))
"""What works at the same time for one program counts as one: bytes on their way, and the SM's pipes."""
PIPES = ("issue", "memory", "ingest", "special", "tensor")


@dataclass(frozen=True)
class Estimate:
    """A launch's time in microseconds and its parts by resource; occupancy is programs per SM, waves may be a fraction."""

    time_us: float
    parts_us: dict[str, float]
    occupancy: int
    waves: float

    @property
    def bottleneck(self) -> str:
        return max(self.parts_us, key=lambda name: self.parts_us[name])


def estimate_launch(launch: Launched) -> Estimate:
    """The estimate of one device launch."""
    return estimate_usage(usage(launch), launch.target)


def estimate_call(launches: Sequence[Launched]) -> tuple[float, tuple[Estimate, ...]]:
    """The estimated time of a launcher call in microseconds: its launches one after the other."""
    estimates = tuple(map(estimate_launch, launches))
    return sum(e.time_us for e in estimates), estimates


def estimate_usage(used: Usage, target: Target, k: Constants = FITTED) -> Estimate:
    """The estimate of a launch that uses this, with these constants."""
    cycle_us = 1.0 / (target.clock_ghz * 1e3)
    macs_per_clock = used.tensor_tflops * 1e3 / 2.0 / (target.num_sms * target.clock_ghz)
    missed = _missed(used.live / (k.l2_usable * target.l2_bytes)) if used.again else 0.0
    per_sm = -(-used.programs // target.num_sms)
    resident = min(used.occupancy, per_sm)

    costs = [_step(step, used, missed, macs_per_clock, k) for step in used.steps]
    pipes = {name: cycle_us * sum(c.pipes[name] for c in costs) for name in PIPES}
    serial = cycle_us * (k.start_cycles + sum(c.serial for c in costs))
    delay = cycle_us * (k.start_cycles + sum(c.delay for c in costs))
    memory = _memory_us(used, target, missed, k)
    # What one program asks of each station of its SM; DRAM and L2 are shared by all SMs.
    asked = {**pipes, **{name: us / per_sm for name, us in memory.items()}}
    main = max(used.steps, key=lambda s: s.loaded * s.trips, default=None)
    depth = main.ahead + 1 if main and main.ahead > 0 else 1
    warps = used.warps if not any(s.counts.get("barrier") for s in used.steps) else 1
    stations = [_norm([asked[n] for n in names], k.norm) / (depth * warps) for names in STATIONS]
    round_us = _cycle(stations, delay / depth, resident * depth * warps, k)
    round_us = max(round_us, serial)
    rounds = per_sm / resident
    tail = (math.ceil(rounds) - rounds) * k.waves * (delay + max(asked.values()))
    parts = {name: us * per_sm for name, us in asked.items()}
    parts["latency"] = max(serial, delay) * rounds
    total = rounds * round_us + tail
    return Estimate(total + target.launch_us, parts, used.occupancy, used.programs / (target.num_sms * used.occupancy))


def _memory_us(used: Usage, target: Target, missed: float, k: Constants) -> dict[str, float]:
    """The time that DRAM and L2 need for all programs."""
    dram = used.footprint + used.again * missed
    if used.footprint > k.l2_usable * target.l2_bytes:
        dram += k.shared_missed * max(0.0, used.requested - used.again - used.footprint)
    l2_gbps = target.l2_bandwidth_gbps * k.l2_share * (k.l2_tiles if used.macs else 1.0)
    return {
        "dram": dram / (target.bandwidth_gbps * k.dram_share * 1e3),
        "l2": (used.requested + used.spilled * used.programs) / (l2_gbps * 1e3),
    }


def _cycle(asked: list[float], delay: float, customers: int, k: Constants) -> float:
    """How long one of these customers takes to pass all stations once, each held up by the others.

    Schweitzer's approximation of mean value analysis for a closed queueing network; service times vary less than its
    exponential ones, which `queueing` says.
    """
    queues = [customers / (len(asked) + 1.0)] * len(asked)
    others = k.queueing * (customers - 1.0) / customers
    for _ in range(ITERATIONS):
        passed = [d * (1.0 + others * q) for d, q in zip(asked, queues, strict=True)]
        cycle = delay + sum(passed)
        queues = [customers * r / cycle for r in passed]
    return _norm((cycle, customers * max(asked)), k.norm)


@dataclass(frozen=True)
class _Cost:
    """Cycles of one loop of one program: on each pipe, waiting for nobody else, and if it had the SM to itself."""

    pipes: dict[str, float]
    delay: float
    serial: float


def _step(step: Step, used: Usage, missed: float, macs_per_clock: float, k: Constants) -> _Cost:
    c, warps, trips = step.counts, used.warps, step.trips
    special, divide = c.get("special", 0), c.get("divide", 0)
    plain = c.get("instructions", 0) + c.get("wide", 0) - special - divide
    slots = k.issue * plain + k.special_instructions * special + k.divide_instructions * divide
    touched = c.get("load", 0) + c.get("store", 0) + c.get("copy", 0)
    shared = c.get("shared_bytes", 0) * LANES / SHARED_BYTES_PER_CLOCK * used.ways + c.get("shuffle", 0)
    tensor = c.get("mma_macs", 0) * warps / (macs_per_clock * k.mma_share)
    if c.get("wgmma"):
        width = c["wgmma_n"] / c["wgmma"]
        tensor += c["wgmma_macs"] * warps / 4.0 / (macs_per_clock * width / (width + k.wgmma_half))
    pipes = {
        "issue": slots * warps / SCHEDULERS,
        "memory": (touched * k.access_cycles + shared) * warps,
        "ingest": step.loaded / k.ingest_bytes,
        "special": (special + divide) * warps * LANES / SPECIAL_PER_CLOCK,
        "tensor": tensor,
    }
    fresh = step.fresh + (1.0 - step.fresh) * missed
    away = k.l2_cycles + (k.dram_cycles - k.l2_cycles) * fresh
    loads = (step.chain.get("load", 0) * step.batches + step.chain.get("atomic", 0)) * away
    alone = max(_chain(step, warps, k), slots * k.alone)
    computing = max(alone, *pipes.values())
    waiting = max(0.0, alone - sum(pipes.values()))
    if step.ahead < 0:
        return _Cost({n: v * trips for n, v in pipes.items()}, trips * (loads + waiting), trips * (loads + computing))
    serial = away + trips * computing + (trips * (away + pipes["ingest"]) if step.ahead == 0 else 0.0)
    return _Cost({n: v * trips for n, v in pipes.items()}, trips * (away + waiting), serial)


def _chain(step: Step, warps: int, k: Constants) -> float:
    """Cycles of the longest dependent path of one iteration, its accesses of global memory left out."""
    barrier = k.barrier_cycles + k.barrier_warp_cycles * warps
    cost = {
        "load": 0.0, "atomic": 0.0, "barrier": barrier, "shared_load": k.shared_cycles,
        "shared_store": k.shared_cycles / 2.0, "shuffle": k.shuffle_cycles, "special": k.special_cycles,
        "divide": k.divide_cycles, "mma": k.mma_cycles, "wgmma": k.wgmma_cycles, "wait": 0.0,
    }  # fmt: skip
    return sum(cost.get(kind, k.arith_cycles) * n for kind, n in step.chain.items())


def _missed(fill: float) -> float:
    """The share of repeated accesses that L2 no longer holds, when what is live fills this much of it."""
    return fill**4 / (1.0 + fill**4)


def _norm(values, power: float) -> float:
    largest = max(values)
    return largest * sum((v / largest) ** power for v in values) ** (1.0 / power) if largest > 0 else 0.0
