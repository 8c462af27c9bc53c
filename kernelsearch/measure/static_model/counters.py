"""Hardware counters of one launch from Nsight Compute: the metrics to ask for, and a parser for its answer.

Metric names are those of Nsight Compute's "Metrics Guide" for Volta and later. Times under it are not used:
counting takes several passes.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
WAITS: Final = {
    "loads": "long_scoreboard",
    "shared memory": "short_scoreboard",
    "barriers": "barrier",
    "fixed latency": "wait",
    "a busy issue slot": "not_selected",
    "the arithmetic units": "math_pipe_throttle",
    "the memory units": "lg_throttle",
    "the shared-memory units": "mio_throttle",
}
"""The causes of a warp's waiting, with Nsight's names of the stall reasons."""
_PLAIN: Final = {
    "read": "dram__bytes_read.sum",
    "written": "dram__bytes_write.sum",
    "bandwidth_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "warps_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
}
METRICS: Final = (*_PLAIN.values(), *(_STALL.format(reason) for reason in WAITS.values()))


@dataclass(frozen=True)
class Counters:
    """One launch: bytes to and from memory, percentages of the peak, and each cause's share of the warps' waiting."""

    function: str
    dram_bytes: float
    bandwidth_percent: float
    issue_percent: float
    warps_percent: float
    l2_hit_percent: float
    waits: Mapping[str, float] = field(default_factory=dict)

    @property
    def longest_waits(self) -> tuple[tuple[str, float], ...]:
        """The waits that are at least a tenth, longest first."""
        return tuple(sorted(((n, s) for n, s in self.waits.items() if s >= 0.1), key=lambda pair: -pair[1]))


def parse_counters(text: str) -> tuple[Counters, ...]:
    """The launches of `ncu --csv --print-units base` in order, without those that miss a metric."""
    launches: dict[str, tuple[str, dict[str, float]]] = {}
    lines = [line for line in text.splitlines() if line.startswith('"')]
    for row in csv.DictReader(lines):
        _, values = launches.setdefault(row["ID"], (row["Kernel Name"].partition("(")[0], {}))
        values[row["Metric Name"]] = _parse_number(row["Metric Value"])
    return tuple(_make_counters(name, values) for name, values in launches.values() if set(METRICS) <= set(values))


def explain_refusal(text: str) -> str:
    """Why ncu counted nothing, as the end of a sentence."""
    if "ERR_NVGPUCTRPERM" in text:
        return "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM)"
    errors = [line.removeprefix("==ERROR==").strip() for line in text.splitlines() if line.startswith("==ERROR==")]
    return f"Nsight Compute says: {errors[0][:200]}" if errors else "Nsight Compute counted nothing"


def _make_counters(name: str, values: Mapping[str, float]) -> Counters:
    waits = {word: values[_STALL.format(reason)] for word, reason in WAITS.items()}
    whole = sum(waits.values()) or 1.0
    plain = {field: values[metric] for field, metric in _PLAIN.items()}
    dram_bytes = plain.pop("read") + plain.pop("written")
    return Counters(name, dram_bytes, **plain, waits={word: value / whole for word, value in waits.items()})


def _parse_number(text: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return 0.0


def match_launches(counted: Sequence[Counters], functions: Sequence[str]) -> tuple[Counters | None, ...]:
    """The counters of each launch of a call, in order; None for all of them where the functions differ."""
    if [c.function for c in counted] != list(functions):
        return (None,) * len(functions)
    return tuple(counted)
