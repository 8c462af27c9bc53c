"""The static model's fitted constants and its error; written by `studies/static_model/table.py --fit`, not by hand."""

from __future__ import annotations

from kernelsearch.measure.static_model.constants import Constants

FITTED = Constants(
    dram_share=0.943,
    l2_share=0.97,
    l2_tiles=1.68,
    l2_usable=0.797,
    shared_missed=0.05,
    ingest_bytes=46.0,
    atomics_per_ns=102.0,
    dram_cycles=952.0,
    l2_cycles=503.0,
    start_cycles=971.0,
    launch_cycles=138.0,
    barrier_cycles=30.6,
    barrier_warp_cycles=2.0,
    shared_cycles=28.0,
    shuffle_cycles=24.0,
    special_cycles=24.0,
    divide_cycles=45.0,
    arith_cycles=4.5,
    mma_cycles=34.0,
    wgmma_cycles=90.0,
    alone=2.52,
    issue=1.19,
    divide_instructions=10.3,
    special_instructions=2.74,
    access_cycles=7.83,
    wgmma_half=36.7,
    mma_share=0.62,
    waves=0.478,
    norm=9.61,
    drain=0.05,
    apart=0.299,
)

SPACES, DEVICE, SOURCE = 10, "H100", "studies/static_model/findings.md, 2026-11-21"
SPEARMAN = (0.56, 0.83, 0.91)
"""Worst, median and best over recorded spaces, each with constants that were fitted to other kernels only."""
REGRET = (1.002, 1.011)
"""Of the best of the ten candidates that the model ranks first, over the best of the space: median and worst."""
RATIO = (0.79, 1.19)
"""Estimated over measured time, median of a space: least and most."""
