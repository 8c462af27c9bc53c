"""The static model: how long a launch would take on a target, from counted work and the compiled binary.

Each resource gets a time of its own (DRAM, L2, instruction issue, special functions, tensor cores, exposed
latency); the estimate is their 8-norm, close to the largest of them. The ingredients are the textbook ones:
the roofline (Williams, Waterman and Patterson, 2009), Little's law for bytes in flight, and the CUDA
occupancy rules. The constants were fitted, within physical bounds, to 760 candidates of six tasks measured on
an H100 (2026-11-21); what rank correlation that gave is in studies/README.md, and it is in-sample. Results are
`estimated`, rank candidates, and are never mixed with measured ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelsearch.measure.counts import Counts
from kernelsearch.mix import Mix
from kernelsearch.targets import Target

DRAM_EFFICIENCY = 0.95
"""Of the datasheet's bandwidth, what the best copies reach."""
DRAM_LATENCY_NS = 640.0
L2_LATENCY_NS = 780.0
"""Of a dependent step of a loop whose data is in L2, its queueing and its arithmetic included."""
L2_EFFICIENCY = 1.1
"""Of the L2's bandwidth; above 1 because L1 serves what neighbouring programs of one SM share."""
L2_USABLE = 0.6
"""The share of L2 that survives between a program's passes over its data."""
REDUCTION_NS = 30.0
BARRIER_NS = 85.0
"""Per reduction, and per reduction and doubling of warps."""
HIDDEN = 0.45
"""The share of a program's latency that other programs of the same SM hide."""
FLIGHT_SHARE = 0.3
"""The share of a program's registers that can hold loads in flight."""
ELEMENT_INSTRUCTIONS = 0.6
ACCESS_INSTRUCTIONS = 5.0
SPECIAL_INSTRUCTIONS = 2.5
SPECIAL_PER_CLOCK = 16.0
LANES_PER_CLOCK = 128.0
REGISTER_GRANULE = 256
SHARED_RESERVED = 1024
NORM = 8.0


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
    # What scales with SMs takes as long as the SM with the most programs.
    imbalance = -(-counts.programs // target.num_sms) * target.num_sms / counts.programs
    traffic = _dram_bytes(counts, target, min(counts.programs, slots))
    parts = {
        "dram": traffic / (target.bandwidth_gbps * DRAM_EFFICIENCY * 1e3),
        "l2": (counts.load_bytes + counts.store_bytes + _spill_bytes(counts, machine))
        / (target.l2_bandwidth_gbps * L2_EFFICIENCY * 1e3),
        "issue": _issue_us(counts, machine, target) * imbalance,
        "special": counts.special / (SPECIAL_PER_CLOCK * target.num_sms * target.clock_ghz * 1e3) * imbalance,
        "tensor": _tensor_us(counts, machine, target) * (math.ceil(waves) / waves if waves > 0.5 else imbalance),
        "latency": _latency_us(counts, machine, waves, occupancy, traffic),
    }
    if machine.num_stages < 2 and counts.flops_dot:
        parts["tensor"] += parts["l2"]  # nothing overlaps the copies with the matrix instructions
    total = sum(v**NORM for v in parts.values()) ** (1 / NORM)
    return Estimate(total + target.launch_us, parts, occupancy, waves)


def estimate_call(launches: Sequence[tuple[Counts, Machine]], target: Target) -> tuple[float, tuple[Estimate, ...]]:
    """The estimated time of a launcher call in microseconds: its launches one after the other."""
    estimates = tuple(estimate_launch(c, m, target) for c, m in launches)
    return sum(e.time_us for e in estimates), estimates


def _dram_bytes(counts: Counts, target: Target, resident: int) -> float:
    """Bytes that DRAM moves: the footprint once, and again what was pushed out of L2 between two passes over it."""
    again = max(0.0, counts.load_bytes + counts.store_bytes - counts.footprint_bytes)
    live = counts.footprint_bytes / counts.programs * resident
    return counts.footprint_bytes + again * min(1.0, max(0.0, live / (L2_USABLE * target.l2_bytes) - 1.0))


def _spill_bytes(counts: Counts, machine: Machine) -> float:
    """Spilled bytes of all threads, written and read once per iteration, up to eight times."""
    return 2.0 * machine.stack_bytes * 32 * machine.num_warps * counts.programs * max(1.0, min(8.0, counts.iterations))


def _element_bytes(counts: Counts) -> float:
    return 2.0 if counts.load_elements and counts.load_bytes / counts.load_elements < 2.9 else 4.0


def _issue_us(counts: Counts, machine: Machine, target: Target) -> float:
    loads = counts.load_elements * _element_bytes(counts) / (machine.mix.load_bytes or 16.0)
    stores = counts.store_bytes / max(2.0, machine.mix.store_bytes)
    lanes = ELEMENT_INSTRUCTIONS * counts.elements + ACCESS_INSTRUCTIONS * (loads + stores)
    lanes += SPECIAL_INSTRUCTIONS * counts.special
    return lanes / (LANES_PER_CLOCK * target.num_sms * target.clock_ghz * 1e3)


def _tensor_us(counts: Counts, machine: Machine, target: Target) -> float:
    total = 0.0
    for kind, flops in counts.flops_dot.items():
        rate = {"16": target.tensor_tflops, "8": 2 * target.tensor_tflops}.get(kind, target.tf32_tflops)
        if not (machine.mix["wgmma"] or machine.mix["mma"]):
            rate = target.fp32_tflops
        elif target.capability == 90 and not machine.mix["wgmma"]:
            rate *= 0.55  # the older instruction reaches about half of Hopper's rate
        # A tile's operands come from shared memory: small tiles starve the matrix units.
        tile = 0.35 + 0.55 * min(1.0, counts.tile / (128 * 256)) ** 0.5
        total += flops / (rate * 1e6 * tile)
    return total


def _latency_us(counts: Counts, machine: Machine, waves: float, occupancy: int, traffic: float) -> float:
    """The dependent chain of one program (batches of loads, reductions), times the rounds of programs.

    A batch is what can be in flight at once: one iteration's loads, several where they are copied
    asynchronously to shared memory, and never more than registers or shared memory hold.
    """
    loaded = counts.load_bytes / counts.programs
    iterations = max(1.0, counts.iterations)
    if machine.mix["cp_async"] or machine.mix["tma"]:
        holds = float(machine.shared)
        depth = min(8.0, max(1.0, holds / max(1.0, loaded / iterations)))
    else:
        holds, depth = FLIGHT_SHARE * machine.registers * 4.0 * 32 * machine.num_warps, 1.0
    loads = max(1.0, counts.loads / counts.programs)
    batches = max(min(iterations, loads) / depth, loaded / max(1024.0, holds))
    moved = max(1.0, counts.load_bytes + counts.store_bytes)
    from_dram = min(1.0, traffic / moved)
    step = L2_LATENCY_NS + (DRAM_LATENCY_NS - L2_LATENCY_NS) * from_dram
    reduction = REDUCTION_NS + (BARRIER_NS * math.log2(machine.num_warps + 1) if machine.num_warps > 1 else 0.0)
    chain = batches * step + counts.reductions / counts.programs * reduction
    if waves <= 1.0:
        return chain / 1e3
    return waves * chain / 1e3 * (1.0 - HIDDEN + HIDDEN / occupancy)
