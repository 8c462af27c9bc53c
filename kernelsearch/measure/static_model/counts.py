"""Counted work of the programs of one launch: the dynamic half of the static model's input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class LaunchCounts:
    """Totals over all programs of one launch, scaled up from sampled programs of the real grid.

    programs is the size of the grid. load_bytes and store_bytes count every access without masked lanes.
    footprint_bytes counts distinct bytes per buffer, at most its size: data that is read twice counts once, data that
    is updated in place counts twice (read and written). flops_dot counts 2·m·n·k of matrix products by operand type
    (`fp32`, `16`); elements counts element-wise results; special counts exponentials, logarithms, roots and divisions;
    reductions counts calls of a reduction; iterations is the number of loop iterations per program; tile is the largest
    block in elements.
    """

    function: str
    programs: int
    load_bytes: float = 0.0
    store_bytes: float = 0.0
    footprint_bytes: float = 0.0
    flops_dot: Mapping[str, float] = field(default_factory=dict)
    elements: float = 0.0
    special: float = 0.0
    reductions: float = 0.0
    atomics: float = 0.0
    loads: float = 0.0
    iterations: float = 0.0
    tile: int = 0
