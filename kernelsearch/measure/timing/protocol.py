"""The search protocol's name, and the spread and margin of times, without torch or numpy."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from kernelsearch.core.types import LEAST_GAIN

PROTOCOL = "search-2"
"""The protocol of `events.take_samples`; search-1 kept samples in which the device had waited for the host."""


def margin_of(aa_spread: float) -> float:
    """The least difference of speed-ups that counts, as a fraction: max(1 %, the A/A spread).

    An interval covers the variation within one process; times vary more from process to process.
    """
    return max(LEAST_GAIN, aa_spread)


def compute_spread_us(times: Sequence[float]) -> float:
    """Half the distance between the quartiles."""
    if len(times) < 4:
        return (max(times) - min(times)) / 2 if times else 0.0
    quartiles = statistics.quantiles(times, n=4)
    return (quartiles[2] - quartiles[0]) / 2
