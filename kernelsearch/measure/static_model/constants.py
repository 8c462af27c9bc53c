"""The static model's constants, with round numbers from datasheets, NVIDIA's guides and published microbenchmarks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """The constants; their fit begins at the defaults. Cycles are of the SM's clock, shares of a datasheet's rate."""

    dram_share: float = 0.92
    """The share of DRAM's bandwidth that the best copies reach."""
    l2_share: float = 0.9
    l2_tiles: float = 1.6
    """L2's bandwidth is higher by this factor for tiles of products, which neighbouring SMs load at the same time."""
    l2_usable: float = 0.75
    """The share of L2 that survives between a program's passes over its data."""
    shared_missed: float = 0.05
    """The share of data that several programs load and that comes from DRAM again, where the whole does not fit L2."""
    ingest_bytes: float = 46.0
    """Bytes per clock that an SM can take from L2."""
    atomics_per_ns: float = 160.0
    """Rate of all L2 slices together, on single elements."""
    dram_cycles: float = 900.0
    l2_cycles: float = 450.0
    start_cycles: float = 1200.0
    """A program's launch on an SM, its arguments, its first instructions."""
    launch_cycles: float = 130.0
    """Between the starts of two programs on one SM."""
    barrier_cycles: float = 25.0
    barrier_warp_cycles: float = 2.0
    """A barrier waits for the slowest warp, and longer for more warps."""
    shared_cycles: float = 28.0
    shuffle_cycles: float = 24.0
    special_cycles: float = 24.0
    divide_cycles: float = 45.0
    arith_cycles: float = 4.5
    mma_cycles: float = 34.0
    wgmma_cycles: float = 90.0
    alone: float = 1.6
    """Cycles per instruction of a scheduler that has one warp."""
    issue: float = 1.1
    """Machine instructions per PTX instruction, without special functions and divisions."""
    divide_instructions: float = 9.0
    special_instructions: float = 2.0
    access_cycles: float = 2.0
    """Cycles of the memory pipe for each warp's access of global memory."""
    wgmma_half: float = 24.0
    """The width (n) at which an asynchronous matrix instruction reaches half of the rate."""
    mma_share: float = 0.62
    """The share of the tensor cores' rate that the synchronous instruction reaches on Hopper."""
    waves: float = 0.5
    """How far the last, partly filled round of programs counts as a whole one."""
    drain: float = 0.05
    """The share of one round in which the machine is partly empty: first programs start, last ones end."""
    apart: float = 0.3
    """Exponent of the number of warps that meet at barriers; warps that never meet have exponent 1."""
    norm: float = 8.0
