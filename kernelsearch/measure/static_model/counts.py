"""What the programs of one launch do, counted: the dynamic half of the static model's input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Counts:
    """Totals over all programs of one launch, scaled up from sampled programs of the real grid.

    programs is the size of the grid. load_bytes and store_bytes count every access, masked lanes left
    out; footprint_bytes counts distinct bytes per buffer, at most its size, so that what is read twice
    counts once, and what is updated in place twice (read and written); lanes is the number of lanes that accesses occupy, masked ones included;
    flops_dot counts 2·m·n·k of matrix products by operand type (`fp32`, `16`); elements counts
    element-wise results; special counts exponentials, logarithms, roots and divisions; reductions counts
    calls of a reduction; iterations is the number of loop iterations per program; tile is the largest block
    in elements.
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
    load_elements: float = 0.0
    iterations: float = 0.0
    tile: int = 0
    specialisation: str = ""
