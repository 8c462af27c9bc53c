"""The static model's constants: what they mean, where their fit begins and within which bounds it stays."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """Cycles are of the SM's clock; shares are of a datasheet's rate."""

    dram_share: float = 0.92
    """Of DRAM's bandwidth, what the best copies reach."""
    l2_share: float = 0.9
    l2_tiles: float = 1.6
    """More of L2's bandwidth for the tiles of products, which neighbouring SMs ask for at once."""
    l2_usable: float = 0.75
    """The share of L2 that survives between a program's passes over its data."""
    shared_missed: float = 0.05
    """The share of what several programs load that comes from DRAM again, where the whole does not fit L2."""
    ingest_bytes: float = 46.0
    """Per clock, what an SM can take from L2."""
    atomics_per_ns: float = 160.0
    """Of L2's slices together, on single elements."""
    dram_cycles: float = 900.0
    l2_cycles: float = 450.0
    start_cycles: float = 1200.0
    """Of a program: its launch on an SM, its arguments, its first instructions."""
    launch_cycles: float = 130.0
    """Between the starts of two programs on one SM."""
    barrier_cycles: float = 25.0
    barrier_warp_cycles: float = 2.0
    """A barrier waits for the slowest warp: more of them, the longer."""
    shared_cycles: float = 28.0
    shuffle_cycles: float = 24.0
    special_cycles: float = 24.0
    divide_cycles: float = 45.0
    arith_cycles: float = 4.5
    mma_cycles: float = 34.0
    wgmma_cycles: float = 90.0
    alone: float = 1.6
    """Cycles that a scheduler with one warp needs an instruction."""
    issue: float = 1.1
    """Machine instructions per instruction of the PTX, those that are special or divide left out."""
    divide_instructions: float = 9.0
    special_instructions: float = 2.0
    access_cycles: float = 2.0
    """Of the memory pipe for each warp's access of global memory."""
    wgmma_half: float = 24.0
    """The width (n) at which an asynchronous matrix instruction reaches half of the rate."""
    mma_share: float = 0.62
    """Of the tensor cores' rate, what the synchronous instruction reaches on Hopper."""
    waves: float = 0.5
    """How far the last, partly filled round of programs counts as a whole one."""
    drain: float = 0.05
    """Of one round, how long the machine is partly empty while the first programs start and the last ones end."""
    apart: float = 0.3
    """Warps that meet at barriers count as this power of their number of programs; those that never meet as 1."""
    norm: float = 8.0


BOUNDS = {
    "dram_share": (0.85, 0.98),
    "l2_share": (0.5, 1.3),
    "l2_tiles": (1.0, 3.0),
    "l2_usable": (0.25, 1.0),
    "shared_missed": (0, 0.3),
    "ingest_bytes": (30, 64),
    "atomics_per_ns": (30, 400),
    "dram_cycles": (600, 1800),
    "l2_cycles": (250, 900),
    "start_cycles": (300, 5000),
    "launch_cycles": (20, 300),
    "barrier_cycles": (10, 100),
    "barrier_warp_cycles": (0, 12),
    "shared_cycles": (20, 60),
    "shuffle_cycles": (10, 40),
    "special_cycles": (15, 50),
    "divide_cycles": (20, 120),
    "arith_cycles": (3, 8),
    "mma_cycles": (16, 70),
    "wgmma_cycles": (30, 300),
    "alone": (1.0, 4.0),
    "issue": (0.7, 2.0),
    "divide_instructions": (4, 20),
    "special_instructions": (1, 6),
    "access_cycles": (0.5, 16),
    "wgmma_half": (1, 128),
    "mma_share": (0.4, 0.9),
    "waves": (0, 1),
    "norm": (3, 16),
    "drain": (0, 0.3),
    "apart": (0, 1),
}
"""What is physically plausible; the fit stays inside."""

START = Constants()
"""Where a fit begins: round numbers from datasheets, from NVIDIA's guides and from microbenchmarks in the literature."""
