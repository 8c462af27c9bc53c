"""How many programs an SM holds at once, by the CUDA occupancy rules."""

from __future__ import annotations

from dataclasses import dataclass

from kernelsearch.compile.code import InstructionCounts
from kernelsearch.kernel.targets import Target

REGISTER_GRANULE = 256
"""Registers are allocated to a warp in multiples of this number."""
SHARED_RESERVED = 1024
"""Bytes of shared memory per program that the system uses (compute capability 8.0 and later)."""


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
    per_warp = -(-max(16, machine.registers) * 32 // REGISTER_GRANULE) * REGISTER_GRANULE
    by_registers = target.registers_per_sm // (per_warp * machine.num_warps)
    by_shared = target.shared_per_sm // (machine.shared + SHARED_RESERVED)
    return max(1, min(target.programs_per_sm, target.warps_per_sm // machine.num_warps, by_registers, by_shared))
