"""Fits the static model's constants to recorded spaces, each within its physical bounds, by coordinate search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.stats import spearmanr

from kernelsearch.core.types import Config
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.static_model.constants import Constants
from kernelsearch.measure.static_model.estimate import estimate_times_us
from kernelsearch.measure.static_model.usage import LoopUsage, Usage

FAMILIES = {
    "softmax_row": "softmax", "softmax_looped": "softmax", "softmax_wide": "softmax", "layernorm": "norm",
    "rmsnorm": "norm", "matmul": "matmul", "matmul_skinny": "matmul", "linear_gelu": "matmul",
}  # fmt: skip
"""Kernels that are variants of each other are left out together."""
ROWS = 100
TOP = 10
GAIN = 2e-4
WIDTHS = (0.35, 0.6, 0.2)
"""First steps of each pass, over half of a constant's range; later passes leave what an earlier one ran into."""
NEAR = 1.05
PRIOR = 0.04
"""Loss of moving a constant through its whole range: what the spaces say little about stays where it began."""


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
"""Physically plausible ranges; the fit stays inside."""
START = Constants()


@dataclass(frozen=True)
class Candidate:
    """A measured candidate and what each of its device launches uses; seed says that it has the task's own config."""

    config: Config
    time_us: float
    usages: tuple[Usage, ...]
    seed: bool = False


Sets = Mapping[str, Sequence[Candidate]]


def family(name: str) -> str:
    name = name.partition(" ")[0]
    return FAMILIES.get(name, name)


def stacked(usages: Sequence[Usage]) -> Usage:
    """One usage whose numbers are arrays over all of these; launches with fewer loops get loops that never run."""
    most = max(len(u.steps) for u in usages)
    empty = LoopUsage(0.0, {}, {}, 0.0, 0.0)
    steps = [[u.steps[n] if n < len(u.steps) else empty for u in usages] for n in range(most)]
    plain = {f.name: np.array([getattr(u, f.name) for u in usages], float) for f in fields(Usage) if f.name != "steps"}
    return Usage(steps=tuple(map(_together, steps)), **plain)


def _together(steps: Sequence[LoopUsage]) -> LoopUsage:
    tables = {
        name: {kind: np.array([getattr(s, name).get(kind, 0) for s in steps], float)
               for kind in sorted({kind for s in steps for kind in getattr(s, name)})}
        for name in ("counts", "chain")
    }  # fmt: skip
    plain = {
        f.name: np.array([getattr(s, f.name) for s in steps], float) for f in fields(LoopUsage) if f.name not in tables
    }
    return LoopUsage(**tables, **plain)


@dataclass(frozen=True)
class Measured:
    """Candidates as arrays: their times, and for each of their device launches what it uses."""

    time_us: np.ndarray
    launches: tuple[Usage, ...]

    @classmethod
    def of(cls, rows: Sequence[Candidate]) -> Measured:
        count = len(rows[0].usages)
        return cls(
            np.array([row.time_us for row in rows]),
            tuple(stacked([row.usages[n] for row in rows]) for n in range(count)),
        )

    def predicted(self, target: Target, k: Constants) -> np.ndarray:
        return sum(estimate_times_us(used, target, k)[0] for used in self.launches)


@dataclass(frozen=True)
class Score:
    """How a ranking went: Spearman's rho, regret of the best of its first ten and of its first.

    ratio is the median of estimated over measured. near is how many candidates lie within 5 % of the best. calibrated
    are estimates put right by the seed's (by the median where the seed was not measured), over the best time;
    worst_near is the largest of those within 5 %.
    """

    n: int
    rho: float
    regret: float
    first: float
    ratio: float
    near: int
    worst_near: float
    calibrated: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Candidate], target: Target, k: Constants) -> Score:
        measured = Measured.of(rows)
        us, estimates = measured.time_us, measured.predicted(target, k)
        order, best = np.argsort(estimates, kind="stable"), us.min()
        ratio = float(np.median(estimates / us))
        seed = next((n for n, row in enumerate(rows) if row.seed), None)
        scale = ratio if seed is None else float(estimates[seed] / us[seed])
        calibrated, near = estimates / scale / best, us <= NEAR * best
        return cls(
            len(rows), float(spearmanr(estimates, us)[0]), float(us[order[:TOP]].min() / best),
            float(us[order[0]] / best), ratio, int(near.sum()), float(calibrated[near].max()), calibrated,
        )  # fmt: skip


def loss(measured: Measured, target: Target, k: Constants) -> float:
    """Rank correlation first, then the regret of the first five, then the times themselves."""
    us, estimates = measured.time_us, measured.predicted(target, k)
    logs = np.log(estimates / us)
    regret = us[np.argsort(estimates, kind="stable")[:5]].min() / us.min()
    spread = max(0.02, float(np.std(np.log(us))))
    off = np.mean(np.minimum(1.0, np.abs(logs - np.median(logs)) / spread))
    return float(
        1.0 - spearmanr(estimates, us)[0] + 0.5 * min(1.0, math.log(regret)) + 0.2 * off + 0.05 * abs(np.median(logs))
    )


def fit(sets: Sets, target: Target, start: Constants = START, rounds: int = 6) -> tuple[Constants, float]:
    """The best constants that coordinate steps reach, and their loss; kernels of one family share a weight."""
    sampled = {name: Measured.of(_sampled(rows)) for name, rows in sets.items()}
    weights = np.array([1.0 / sum(family(m) == family(n) for m in sampled) ** 0.5 for n in sampled])
    weights /= weights.sum()

    def total(k: Constants) -> float:
        return float(weights @ [loss(rows, target, k) for rows in sampled.values()]) + PRIOR * _distance(k, start)

    k, best = start, total(start)
    for width in WIDTHS:
        steps = dict.fromkeys(BOUNDS, width)
        for _ in range(rounds):
            before = best
            for name in BOUNDS:
                for sign in (1.0, -1.0):
                    moved = replace(k, **{name: _stepped(name, getattr(k, name), sign * steps[name])})
                    if moved != k and (found := total(moved)) < best - GAIN:
                        k, best = moved, found
                        break
                else:
                    steps[name] *= 0.5
            if before - best < 5 * GAIN:
                break
    return k, best


def _distance(k: Constants, start: Constants) -> float:
    """The sum over the constants of squared distances from where they began, in shares of their ranges."""
    return sum(((getattr(k, n) - getattr(start, n)) / (high - low)) ** 2 for n, (low, high) in BOUNDS.items())


def _stepped(name: str, value: float, step: float) -> float:
    low, high = BOUNDS[name]
    moved = value * (high / low) ** (0.5 * step) if low > 0 and high / low > 3 else value + 0.5 * step * (high - low)
    return float(f"{min(high, max(low, moved)):.3g}")


def _sampled(rows: Sequence[Candidate]) -> list[Candidate]:
    """At most ROWS candidates: the fastest quarter of those, the rest drawn evenly."""
    if len(rows) <= ROWS:
        return list(rows)
    ordered = sorted(rows, key=lambda row: row.time_us)
    rest = ordered[ROWS // 4 :]
    picks = np.linspace(0, len(rest) - 1, ROWS - ROWS // 4).astype(int)
    return ordered[: ROWS // 4] + [rest[i] for i in picks]


def left_out(sets: Sets, target: Target, start: Constants = START) -> dict[str, Constants]:
    """The constants for each set, fitted to all sets of other families; each fit in a process of its own."""
    families = sorted({family(n) for n in sets})
    others = [{n: rows for n, rows in sets.items() if family(n) != one} for one in families]
    with ProcessPoolExecutor(max_workers=2) as pool:
        fits = pool.map(fit, others, [target] * len(others), [start] * len(others))
        found = {one: k for one, (k, _) in zip(families, fits, strict=True)}
    return {n: found[family(n)] for n in sets}
