"""Scores of runs on a recorded space: evaluations until near the optimum, and a score against random search.

The score follows KernelTuner's methodology (Willemsen et al., 2024, "A methodology for comparing optimization
algorithms for auto-tuning"): unique evaluations only; the baseline is the *calculated* expectation of random search
without replacement; at each evaluation count the gain is the distance from the baseline over the baseline's own
distance from the optimum (1: the optimum, 0: no better than random, below: worse); the mean over a budget that ends
where the baseline has come 95 % of the way from the median to the optimum. Evaluations stand for time here.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from recorded.simulation import SimulatedRun
from recorded.space import RecordedSpace

NEAR = 1.02
CUTOFF = 0.95
NEVER = math.inf


def count_evaluations(space: RecordedSpace, run: SimulatedRun, near: float = NEAR) -> float:
    """Unique evaluations until the best is within near times the optimum; infinite if it never was."""
    limit = near * space.optimum_us
    return next((n for n, us in enumerate(run.best_us, 1) if us is not None and us <= limit), NEVER)


def expect_random_search(space: RecordedSpace, trials: int) -> list[float]:
    """The expected best time after 1, 2, ... uniform draws without replacement, in microseconds; exact.

    While all drawn configs failed the slowest time counts.
    """
    times = sorted(row.time_us for row in space.rows if row.time_us is not None)
    total = len(space.rows)
    above = [1.0] * (len(times) + 1)  # above[i]: the chance that none of the i fastest is drawn
    expected = []
    for drawn in range(min(trials, total)):
        above = [p * max(0, total - i - drawn) / (total - drawn) for i, p in enumerate(above)]
        expected.append(sum((above[i] - above[i + 1]) * t for i, t in enumerate(times)) + above[-1] * times[-1])
    return expected


def evaluation_budget(space: RecordedSpace) -> int:
    """Evaluations until the expected random search has come CUTOFF of the way from the median to the optimum."""
    median = statistics.median(row.time_us for row in space.rows if row.time_us is not None)
    limit = median - CUTOFF * (median - space.optimum_us)
    expected = expect_random_search(space, len(space.rows))
    return next((n for n, us in enumerate(expected, 1) if us <= limit), len(expected))


def score(space: RecordedSpace, runs: Sequence[SimulatedRun], most: int | None = None) -> float:
    """The mean score of the runs over the space's budget, or its first `most` evaluations.

    A run that ended early keeps its best.
    """
    expected = expect_random_search(space, min(evaluation_budget(space), most or len(space.rows)))
    worst = max(row.time_us for row in space.rows if row.time_us is not None)
    scores = []
    for run in runs:
        best = [worst if us is None else us for us in run.best_us] or [worst]
        best += [best[-1]] * (len(expected) - len(best))
        gaps = [(e - b) / (e - space.optimum_us) for e, b in zip(expected, best, strict=False) if e > space.optimum_us]
        scores.append(statistics.fmean(gaps) if gaps else 0.0)
    return statistics.fmean(scores)
