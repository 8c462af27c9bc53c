"""The names of the protocols that times are taken under, and the statistics of their samples; no torch needed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

PROTOCOL = "search-1"
"""The search protocol, as `timing.sample` does it."""


def spread_us(times: Sequence[float]) -> float:
    """Half the distance between the quartiles."""
    if len(times) < 4:
        return (max(times) - min(times)) / 2 if times else 0.0
    quartiles = statistics.quantiles(times, n=4)
    return (quartiles[2] - quartiles[0]) / 2
