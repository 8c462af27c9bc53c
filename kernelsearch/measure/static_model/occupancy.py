"""How many programs an SM holds at once, by the CUDA occupancy rules, which hold for a CU too."""

from __future__ import annotations

from dataclasses import dataclass

from kernelsearch.compile.code import InstructionCounts
from kernelsearch.kernel.targets import Target

REGISTER_GRANULE = 256
"""Registers are allocated to a warp of 32 lanes in multiples of this number, to one of 64 of twice as many."""


@dataclass(frozen=True)
class BinaryResources:
    """One binary: warps per program, registers and stack bytes per thread, bytes of shared memory, and stages."""

    num_warps: int
    registers: int
    stack_bytes: int
    shared: int
    mix: InstructionCounts
    num_stages: int = 3


def compute_programs_per_sm(machine: BinaryResources, target: Target) -> int:
    """How many programs fit an SM at once, by warps, registers and shared memory (at least 1)."""
    return max(1, int(min(find_room(machine, target).values())))


def find_room(machine: BinaryResources, target: Target) -> dict[str, float]:
    """The number of programs for which an SM has enough of each resource, as a fraction."""
    granule = REGISTER_GRANULE * target.warp_size // 32
    per_warp = -(-max(16, machine.registers) * target.warp_size // granule) * granule
    shared = max(1, machine.shared + target.shared_reserved)
    warps = target.registers_per_sm / per_warp
    warps -= warps % 4 if target.gfx else 0  # each of four SIMDs has registers of its own
    return {
        "registers": warps / machine.num_warps, "shared": target.shared_per_sm / shared,
        "warps": target.warps_per_sm / machine.num_warps, "programs": target.programs_per_sm,
    }  # fmt: skip
