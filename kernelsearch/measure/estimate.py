"""The static model: how long a launch would take on a target, from counted work and the compiled binary.

Each resource gets a time of its own (DRAM, L2, instruction issue, special functions, tensor cores, exposed
latency); the estimate is their 4-norm, so that the slowest dominates and a close second still costs. The
ingredients are the textbook ones: the roofline (Williams, Waterman and Patterson, 2009), Little's law for
bytes in flight, and the CUDA occupancy rules. The constants below are round numbers for Hopper-class
machines, not fits; results are `estimated`, rank candidates, and are never mixed with measured ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelsearch.measure.counts import Counts
from kernelsearch.mix import Mix
from kernelsearch.targets import Target

DRAM_EFFICIENCY = 0.92
DRAM_LATENCY_NS = 750.0
L2_LATENCY_NS = 270.0
REDUCTION_NS = 90.0
BARRIER_NS = 25.0
L2_USABLE = 0.6
DIVIDE_INSTRUCTIONS = 9.0
SPECIAL_PER_CLOCK = 16.0
LANES_PER_CLOCK = 128.0
REGISTER_GRANULE = 256
SHARED_RESERVED = 1024
NORM = 4.0


@dataclass(frozen=True)
class Machine:
    """What the model needs of one binary: num_warps, registers and stack bytes per thread, shared bytes, mix, stages."""

    num_warps: int
    registers: int
    stack_bytes: int
    shared: int
    mix: Mix
    num_stages: int = 3


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


def programs_per_sm(machine: Machine, target: Target) -> int:
    """How many programs fit an SM at once, by warps, registers and shared memory (at least 1)."""
    per_warp = -(-max(16, machine.registers) * 32 // REGISTER_GRANULE) * REGISTER_GRANULE
    by_registers = target.registers_per_sm // (per_warp * machine.num_warps)
    by_shared = target.shared_per_sm // (machine.shared + SHARED_RESERVED)
    return max(1, min(target.programs_per_sm, target.warps_per_sm // machine.num_warps, by_registers, by_shared))


def estimate_launch(counts: Counts, machine: Machine, target: Target) -> Estimate:
    """The estimate of one device launch."""
    occupancy = programs_per_sm(machine, target)
    slots = target.num_sms * occupancy
    waves = counts.programs / slots
    busy_sms = min(target.num_sms, counts.programs)
    resident = min(counts.programs, slots)
    # The last wave runs with idle SMs: what scales with SMs takes as long as the fullest one.
    rounds = -(-counts.programs // target.num_sms)
    imbalance = rounds * target.num_sms / counts.programs
    parts = {
        "dram": _dram_us(counts, machine, target, occupancy, resident, busy_sms),
        "l2": (counts.load_bytes + counts.store_bytes + _spill_bytes(counts, machine)) / (target.l2_bandwidth_gbps * 1e3),
        "issue": _issue_us(counts, machine, target) * imbalance,
        "special": _special_us(counts, machine, target) * imbalance,
        "tensor": _tensor_us(counts, machine, target) * max(1.0, -(-waves // 1) / waves if waves > 0.5 else imbalance),
        "latency": _latency_us(counts, machine, waves),
    }
    if machine.num_stages < 2 and counts.flops_dot:
        parts["tensor"] += parts["l2"]  # nothing overlaps the copies with the matrix instructions
    total = sum(v**NORM for v in parts.values()) ** (1 / NORM)
    return Estimate(total + target.launch_us, parts, occupancy, waves)


def estimate_call(launches: Sequence[tuple[Counts, Machine]], target: Target) -> tuple[float, tuple[Estimate, ...]]:
    """The estimated time of a launcher call in microseconds: its launches one after the other."""
    estimates = tuple(estimate_launch(c, m, target) for c, m in launches)
    return sum(e.time_us for e in estimates), estimates


def _dram_us(
    counts: Counts, machine: Machine, target: Target, occupancy: int, resident: int, busy_sms: int
) -> float:
    again = max(0.0, counts.load_bytes + counts.store_bytes - counts.footprint_bytes)
    live = min(counts.footprint_bytes, counts.footprint_bytes / counts.programs * resident)
    missing = min(1.0, max(0.0, live / (L2_USABLE * target.l2_bytes) - 1.0))
    traffic = counts.footprint_bytes + again * missing
    # Little's law: bytes in flight over latency is the bandwidth that these programs can draw.
    phases = max(1.0, counts.loads / counts.programs)
    pipelined = machine.num_stages if counts.flops_dot or machine.mix["cp_async"] else 1
    flying = counts.load_bytes / counts.programs / phases * min(phases, max(1, pipelined) + 1.0)
    drawn_gbps = flying * occupancy * busy_sms / DRAM_LATENCY_NS
    peak = target.bandwidth_gbps * DRAM_EFFICIENCY
    reachable = peak * drawn_gbps / (drawn_gbps + peak) * 2 if drawn_gbps < peak else peak
    return traffic / (min(peak, reachable) * 1e3)


def _spill_bytes(counts: Counts, machine: Machine) -> float:
    """Spilled bytes, each written and read once per iteration, over all threads."""
    return 2.0 * machine.stack_bytes * 32 * machine.num_warps * counts.programs * max(1.0, min(4.0, counts.iterations))


def _issue_us(counts: Counts, machine: Machine, target: Target) -> float:
    width = 4.0
    accesses = 0.0
    for table, amount in ((machine.mix.loads, counts.load_elements), (machine.mix.stores, counts.store_bytes / width)):
        mean = sum(w * n for w, n in table.items()) / sum(table.values()) if table else 16.0
        accesses += amount * _ELEMENT_BYTES / max(2.0, mean)
    per_access = 4.0  # the access, its address, its predicate
    lanes = counts.elements + per_access * accesses + 2.0 * counts.special + _spill_bytes(counts, machine) / 4
    return lanes / (LANES_PER_CLOCK * target.num_sms * target.clock_ghz * 1e3)


_ELEMENT_BYTES = 2.0


def _special_us(counts: Counts, machine: Machine, target: Target) -> float:
    return counts.special / (SPECIAL_PER_CLOCK * target.num_sms * target.clock_ghz * 1e3)


def _tensor_us(counts: Counts, machine: Machine, target: Target) -> float:
    total = 0.0
    for kind, flops in counts.flops_dot.items():
        rate = {"16": target.tensor_tflops, "8": 2 * target.tensor_tflops}.get(kind, target.tf32_tflops)
        if not (machine.mix["wgmma"] or machine.mix["mma"]):
            rate = target.fp32_tflops
        elif target.capability == 90 and not machine.mix["wgmma"]:
            rate *= 0.55
        per_warp = counts.tile / machine.num_warps
        # A tile's operands come from shared memory: small tiles starve the matrix units.
        tile = min(1.0, 0.35 + 0.55 * min(1.0, counts.tile / (128 * 256)) ** 0.5)
        balance = 1.0 if per_warp >= 1024 else per_warp / 1024
        total += flops / (rate * 1e6 * tile * max(0.1, balance))
    return total


def _latency_us(counts: Counts, machine: Machine, waves: float) -> float:
    """The dependent chain of one program, times the rounds of programs that follow each other."""
    per_program_loads = counts.loads / counts.programs
    chain = min(per_program_loads, max(1.0, counts.iterations)) / (machine.num_stages if counts.flops_dot else 1)
    reductions = counts.reductions / counts.programs
    step = BARRIER_NS * 2 if machine.num_warps > 1 else 0.0
    first = DRAM_LATENCY_NS
    nanoseconds = first + max(0.0, chain - 1) * L2_LATENCY_NS + reductions * (REDUCTION_NS + step)
    return max(1.0, waves) * nanoseconds / 1e3
