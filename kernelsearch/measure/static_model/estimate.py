"""The static model: the estimated time of a launch on a target, from the compiled binary and the launch.

Each resource gets a time of its own (DRAM, L2, and on the fullest SM instruction issue, the memory pipe, special
functions, tensor cores, and the dependent chain of one program after the other); the estimate is a high norm of them,
close to the largest. The ingredients are the textbook ones: the roofline (Williams, Waterman and Patterson, 2009),
Little's law for bytes in flight, the CUDA occupancy rules, and warp-level chains of dependent latencies (Hong and Kim,
2009). `constants.py` has the fitted constants, `fitted.py` their values and how well the model ranks kernels that it
was not fitted to. Results are `estimated`: they rank candidates and are never mixed with measured times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from kernelsearch.kernel.targets import Target
from kernelsearch.measure.static_model.constants import Constants
from kernelsearch.measure.static_model.device_launch import SHARED_BYTES_PER_CLOCK, SPECIAL_PER_CLOCK, DeviceLaunch
from kernelsearch.measure.static_model.fitted import FITTED
from kernelsearch.measure.static_model.usage import LoopUsage, Usage, compute_usage

Number = float | np.ndarray
SCHEDULERS = 4
STATIONS = (("dram", "l2", "ingest"), ("issue", "memory", "special", "tensor"), ("launch",))
"""Resources that work at the same time for one program count as one: bytes in flight, and the SM's pipes."""
PIPES = ("issue", "memory", "ingest", "special", "tensor")


@dataclass(frozen=True)
class Estimate:
    """A launch's time in microseconds, its parts by resource, programs per SM, and waves of programs (a fraction).

    extrapolates: see `DeviceLaunch.extrapolates`.
    """

    time_us: float
    parts_us: dict[str, float]
    occupancy: int
    waves: float
    extrapolates: tuple[str, ...] = ()

    @property
    def bottleneck(self) -> str:
        return max(self.parts_us, key=lambda name: self.parts_us[name])


def estimate_launch(launch: DeviceLaunch) -> Estimate:
    """The estimate of one device launch."""
    used, target = compute_usage(launch), launch.target
    total, parts = estimate_times_us(used, target)
    waves = used.programs / (target.num_sms * used.occupancy)
    parts_us = {name: float(us) for name, us in parts.items()}
    return Estimate(float(total), parts_us, used.occupancy, waves, launch.extrapolates)


def estimate_call(launches: Sequence[DeviceLaunch]) -> tuple[float, tuple[Estimate, ...]]:
    """The estimated time of a launcher call in microseconds: its launches one after the other."""
    estimates = tuple(map(estimate_launch, launches))
    return sum(e.time_us for e in estimates), estimates


def estimate_times_us(used: Usage, target: Target, k: Constants = FITTED) -> tuple[Number, dict[str, Number]]:
    """The estimated time in microseconds of a launch with this usage, and its parts by resource.

    Every number of `used` may be an array over launches; then the results are arrays too.
    """
    cycle_us = 1.0 / (target.clock_ghz * 1e3)
    macs_per_clock = used.tensor_tflops * 1e3 / 2.0 / (target.num_sms * target.clock_ghz)
    missed = _missed_share_of(used.live / (k.l2_usable * target.l2_bytes))
    per_sm = -(-used.programs // target.num_sms)
    resident = np.minimum(used.occupancy, per_sm)

    costs = [_cost_of(step, used, missed, macs_per_clock, target, k) for step in used.steps]
    pipes = {name: cycle_us * sum(c.pipes[name] for c in costs) for name in PIPES}
    serial = cycle_us * (k.start_cycles + sum(c.serial for c in costs))
    delay = cycle_us * (k.start_cycles + sum(c.delay for c in costs))
    # The time that one program needs of each station of its SM; DRAM and L2 are shared by all SMs.
    shared = {name: us / per_sm for name, us in _memory_us_of(used, target, missed, k).items()}
    needed = {**pipes, **shared, "launch": k.launch_cycles * cycle_us}
    stations = [_smooth_largest([needed[n] for n in names], k.norm) for names in STATIONS]
    # The number that pass the stations independently: programs, warps that seldom meet, copies ahead.
    apart = used.depth * used.warps ** (1.0 + (k.apart - 1.0) * used.meet)
    round_us = _smooth_largest((delay / used.depth + sum(stations) / apart, resident * _take_largest(stations)), k.norm)
    round_us = np.maximum(round_us, serial)
    rounds = per_sm / resident
    tail = (np.ceil(rounds) - rounds) * k.waves * (delay + _take_largest(needed.values()))
    parts = {name: us * per_sm for name, us in needed.items()}
    parts["latency"] = np.maximum(serial, delay) * rounds
    # Programs add to memory when they end; the programs of a round end together.
    parts["atomics"] = used.atomics * used.programs / (k.atomics_per_ns * 1e3)
    return (rounds + k.drain) * round_us + tail + parts["atomics"] + target.launch_us, parts


def _memory_us_of(used: Usage, target: Target, missed: Number, k: Constants) -> dict[str, Number]:
    """The time of DRAM and L2 for all programs."""
    others = np.maximum(0.0, used.requested - used.again - used.footprint)  # loaded by several programs
    too_large = used.footprint > k.l2_usable * target.l2_bytes
    dram = used.footprint + used.again * missed + k.shared_missed * others * too_large
    l2_gbps = target.l2_bandwidth_gbps * k.l2_share * np.where(used.macs > 0, k.l2_tiles, 1.0)
    return {
        "dram": dram / (target.bandwidth_gbps * k.dram_share * 1e3),
        "l2": (used.requested + used.spilled * used.programs) / (l2_gbps * 1e3),
    }


@dataclass(frozen=True)
class _Cost:
    """Cycles of one loop of one program: on each pipe, waiting without others, and alone on the SM."""

    pipes: dict[str, Number]
    delay: Number
    serial: Number


def _cost_of(step: LoopUsage, used: Usage, missed: Number, macs: Number, target: Target, k: Constants) -> _Cost:
    c, warps, trips = step.counts, used.warps, step.trips
    special, divide = c.get("special", 0), c.get("divide", 0)
    plain = c.get("instructions", 0) + c.get("wide", 0) - special - divide
    slots = k.issue * plain + k.special_instructions * special + k.divide_instructions * divide
    touched = c.get("load", 0) + c.get("store", 0) + c.get("copy", 0)
    shared = c.get("shared_bytes", 0) * target.warp_size / SHARED_BYTES_PER_CLOCK * used.ways + c.get("shuffle", 0)
    width = c.get("wgmma_n", 0) / np.maximum(1, c.get("wgmma", 0))
    wide_share = np.maximum(width, 1.0) / (np.maximum(width, 1.0) + k.wgmma_half)
    tensor = c.get("mma_macs", 0) / k.mma_share + c.get("wgmma_macs", 0) / 4.0 / wide_share
    pipes = {
        "issue": slots * target.issue_cycles * warps / SCHEDULERS,
        "memory": (touched * k.access_cycles + shared) * warps,
        "ingest": step.loaded / k.ingest_bytes,
        "special": (special + divide) * warps * target.warp_size / SPECIAL_PER_CLOCK,
        "tensor": tensor * warps / macs,
    }
    fresh = step.fresh + (1.0 - step.fresh) * missed * (used.again > 0)
    away = k.l2_cycles + (k.dram_cycles - k.l2_cycles) * fresh
    loads = (step.chain.get("load", 0) * step.batches + step.chain.get("atomic", 0)) * away
    alone = np.maximum(_chain_cycles_of(step, warps, k), slots * max(k.alone, target.issue_cycles))
    computing = np.maximum(alone, _take_largest(pipes.values()))
    waiting = np.maximum(0.0, alone - sum(pipes.values()))
    # Copies that run ahead are waited for once, those that do not in every iteration.
    copied = (step.ahead >= 0) & (trips > 0)
    serial = np.where(
        copied,
        away + trips * computing + trips * (away + pipes["ingest"]) * (step.ahead == 0),
        trips * (loads + computing),
    )
    delay = trips * (np.where(copied, away, loads) + waiting)
    return _Cost({name: cycles * trips for name, cycles in pipes.items()}, delay, serial)


def _chain_cycles_of(step: LoopUsage, warps: Number, k: Constants) -> Number:
    """Cycles of the longest dependent path of one iteration, its accesses of global memory left out."""
    cost = dict.fromkeys(("load", "atomic", "wait"), 0.0) | {
        "barrier": k.barrier_cycles + k.barrier_warp_cycles * warps,
        "shared_load": k.shared_cycles,
        "shared_store": k.shared_cycles / 2.0,
        "shuffle": k.shuffle_cycles,
        "special": k.special_cycles,
        "divide": k.divide_cycles,
        "mma": k.mma_cycles,
        "wgmma": k.wgmma_cycles,
    }
    return sum(cost.get(kind, k.arith_cycles) * n for kind, n in step.chain.items())


def _missed_share_of(fill: Number) -> Number:
    """The share of repeated accesses that miss L2, when live data fills this much of it."""
    return fill**6 / (1.0 + fill**6)


def _take_largest(values: Iterable[Number]) -> Number:
    return reduce(np.maximum, values)


def _smooth_largest(values: Iterable[Number], power: float) -> Number:
    """A smooth maximum."""
    values = list(values)
    largest = np.maximum(_take_largest(values), 1e-12)
    return largest * sum((v / largest) ** power for v in values) ** (1.0 / power)
