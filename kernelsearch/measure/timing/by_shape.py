"""The best candidate for each shape, and the gain of running them together.

A finding is the plain data of `report.findings.build_finding`. The seed is a candidate too: it runs where nothing is
faster.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import geometric_mean
from typing import Any, TypeVar

from kernelsearch.core.types import LEAST_GAIN
from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.measure.timing.protocol import margin_of
from kernelsearch.record.rows import score_times

Finding = Mapping[str, Any]
C = TypeVar("C")

EVEN = {"ratio": 1.0, "low": 1.0, "high": 1.0}

UNSERVED = 1e6
"""What a shape counts at which nothing runs yet, over the seed's time."""
WORTH = 0.001
"""A candidate is worth a place in a table if the mean gain over all shapes grows by so much."""
LOOKED_AT = 3
"""A place in a table stays empty once so many candidates for it were not accepted."""


def choose_table(
    candidates: Sequence[C],
    ratios: Callable[[C], Mapping[str, float]],
    order: Callable[[C], Hashable],
    seed: C | None = None,
    most: int | None = None,
    accept: Callable[[C], bool] = lambda candidate: True,
) -> dict[str, C]:
    """The candidate to run by shape: of at most `most` beside the seed those that gain most together.

    ratios are a candidate's times over the seed's by shape; order breaks ties; seed is the candidate that is the seed
    itself, which runs wherever nothing gains over it. The first is the one that gains most, each next one that which
    gains most beside those before it; it takes the shapes at which it is faster by LEAST_GAIN, and since one
    kernel is simpler than several it must be worth it (WORTH). One that is not accepted is passed over, until LOOKED_AT
    for one place are. Empty without candidates.
    """
    left = [c for c in candidates if c is not seed and ratios(c)]
    shapes = dict.fromkeys(s for c in sorted(candidates, key=lambda c: -len(ratios(c))) for s in ratios(c))
    served = dict.fromkeys(shapes, UNSERVED) | dict(ratios(seed) if seed is not None else {})
    chosen = dict.fromkeys(ratios(seed), seed) if seed is not None else {}

    def select_better(one: C) -> dict[str, float]:
        return {shape: ratio for shape, ratio in ratios(one).items() if served[shape] / ratio >= 1.0 + LEAST_GAIN}

    while left and most != 0:
        scores = [(score_times(select_better(c), served) or 1.0, order(c), n) for n, c in enumerate(left)]
        able = [left[n] for score, _, n in heapq.nsmallest(LOOKED_AT, scores) if score <= 1.0 - WORTH]
        entry = next((c for c in able if accept(c)), None)
        if entry is None:
            break
        for shape, ratio in select_better(entry).items():
            chosen[shape], served[shape] = entry, ratio
        most = None if most is None else most - 1
    return {shape: chosen[shape] for shape in shapes if shape in chosen}


def infer_seed_finding(findings: Sequence[Finding]) -> Finding | None:
    """The seed's finding, from the findings of others; the first one that timed a shape counts.

    Each of its intervals follows from two others (seed and baseline over the same candidate) and is wider than both.
    None when no confirmed finding timed the seed.
    """
    shapes: dict[str, dict[str, Any]] = {}
    others = _select_confirmed(findings, of_seed=False)
    for entry in (entry for finding in others for entry in finding["shapes"]):
        if entry["shape"] not in shapes and (own := _make_seed_entry(entry)):
            shapes[entry["shape"]] = own
    if not shapes:
        return None
    return {
        **{k: others[0][k] for k in ("device", "protocol", "status", "level")},
        "name": SEED,
        "kernel": "",
        "config": {},
        "reason": "timed beside the others; its intervals follow from theirs",
        "champion_at": [],
        "aa_spread": max((f["aa_spread"] or 0.0) for f in others),
        "shapes": list(shapes.values()),
    }


def _select_confirmed(findings: Sequence[Finding], of_seed: bool) -> list[Finding]:
    return [f for f in findings if f["status"] == "confirmed" and (f["name"] == SEED) == of_seed]


def _make_seed_entry(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    timed = {b["name"]: b for b in entry["baselines"] if "ratio" in b}
    seed = timed.pop(SEED, None)
    if seed is None:
        return None
    fastest = min(timed.values(), key=lambda b: b["time_us"], default=None)
    versus = {n: _divide(b, seed) for n, b in timed.items()}
    return {
        **{k: entry[k] for k in ("shape", "label", "clocks", "control", "blocks", "dropped")},
        "time_us": seed["time_us"],
        "spread_us": seed["spread_us"],
        "vs_seed": dict(EVEN),
        "fastest": fastest["name"] if fastest else "",
        "vs_fastest": versus[fastest["name"]] if fastest else None,
        "baselines": [{**b, **versus[n]} for n, b in timed.items()],
    }


def _divide(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {
        "ratio": one["ratio"] / other["ratio"],
        "low": one["low"] / other["high"],
        "high": one["high"] / other["low"],
    }


def choose_findings(findings: Sequence[Finding], most: int | None = None) -> dict[str, Finding]:
    """The finding to run at each shape, of the confirmed ones and the seed; empty when nothing was confirmed.

    most is how many may run beside the seed.
    """
    others = _select_confirmed(findings, of_seed=False)
    seed = infer_seed_finding(others) or next(iter(_select_confirmed(findings, of_seed=True)), None)
    return choose_table(
        others if seed is None else [*others, seed], ratios_of, lambda f: (f["name"], str(f["config"])), seed, most
    )


def ratios_of(finding: Finding) -> dict[str, float]:
    return {s["shape"]: 1.0 / s["vs_seed"]["ratio"] for s in finding["shapes"] if s["vs_seed"]}


def compute_gain(chosen: Mapping[str, Finding]) -> dict[str, Any] | None:
    """The gain of running these findings' candidates by shape, over the fastest baselines and over the seed.

    Gains are geometric means over the shapes. The ends of their intervals are the means of the shapes' own ends. These
    hold together at `level_for_comparisons` of all, and so does the mean's, whichever candidate was chosen; it is wider
    than a bootstrap of one choice. Where the seed runs and is the fastest baseline too, the gain is 1. None where a
    shape lacks a baseline.
    """
    shapes = [_gain_at(shape, finding) for shape, finding in chosen.items()]
    if not shapes or any(s["vs_fastest"] is None for s in shapes):
        return None
    over = _mean_of([s["vs_fastest"] for s in shapes])
    needed = margin_of(max((f["aa_spread"] or 0.0) for f in chosen.values()))
    return {
        "vs_fastest": over,
        "vs_seed": _mean_of([s["vs_seed"] for s in shapes]),
        "margin": needed,
        "seed_configs": max(f.get("seed_configs", 0) for f in chosen.values()),
        "faster": over["low"] > 1.0 + needed,
        "shapes": shapes,
    }


def _gain_at(shape: str, finding: Finding) -> dict[str, Any]:
    entry = next(s for s in finding["shapes"] if s["shape"] == shape)
    over, fastest = entry["vs_fastest"], entry["fastest"]
    if finding["name"] == SEED and (over is None or over["ratio"] >= 1.0):
        over, fastest = EVEN, SEED
    return {
        "shape": shape,
        "label": entry["label"],
        "name": finding["name"],
        "kernel": finding["kernel"],
        "config": dict(finding["config"]),
        "time_us": entry["time_us"],
        "fastest": fastest,
        "vs_fastest": dict(over) if over else None,
        "vs_seed": dict(entry["vs_seed"]),
    }


def _mean_of(intervals: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {k: geometric_mean(i[k] for i in intervals) for k in ("ratio", "low", "high")}
