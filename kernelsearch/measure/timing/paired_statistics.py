"""Statistics of paired log-ratios: their median with a block-bootstrap interval, and when a kernel is faster.

A ratio is the other's time over the candidate's, so that above 1 the candidate is faster; series hold its natural
logarithm once per block of the confirmed protocol. Neighbouring blocks share clocks and temperature, so whole
groups of consecutive blocks are resampled, not single blocks (Carlstein 1986, "The use of subseries values
for estimating the variance of a general statistic from a stationary sequence"), by `scipy.stats.bootstrap`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelsearch.measure.timing.protocol import margin_of

LEVEL = 0.99
"""The level of all reported intervals. It is above the usual 0.95, because sampling stops when an interval is narrow
enough, and because percentile intervals of few groups cover a little less than their level."""

RESAMPLES = 2000
BEYOND = 2
"""Resamples that must be beyond either end of an interval: a high level needs more resamples."""
LEAST_GROUPS = 12
BATCH = 2000
"""Resamples in memory at once."""


@dataclass(frozen=True)
class Interval:
    """A speed-up with its interval: ratio of times, its lower and upper end at `level`, from so many blocks."""

    ratio: float
    low: float
    high: float
    level: float
    blocks: int

    @property
    def half_width(self) -> float:
        """Half the interval's width, relative to the ratio."""
        return (self.high - self.low) / 2 / self.ratio


def group_length_of(blocks: int) -> int:
    """Consecutive blocks that are resampled together: the cube root of their number, but at least 12 groups."""
    return max(1, min(round(blocks ** (1 / 3)), blocks // LEAST_GROUPS))


def bootstrap_interval(
    series: Sequence[Sequence[float]], level: float = LEVEL, seed: int = 0, draws: int | None = None
) -> Interval | None:
    """The geometric mean over shapes of the median ratio, with its interval.

    series has one sequence of log-ratios per shape, which are resampled independently; draws is the number of
    resamples, by default as many as the level needs. None when a shape has fewer than four blocks, which are too few.
    """
    from scipy import stats

    if not series or min(len(s) for s in series) < 4:
        return None
    grouped = [_group(np.asarray(s, dtype=float)) for s in series]
    centre = float(np.mean([np.median(s) for s in series]))

    def statistic(*picked: np.ndarray, axis: int = -1) -> np.ndarray:
        medians = [_median_of_groups(groups, indices, axis) for groups, indices in zip(grouped, picked, strict=True)]
        return np.mean(medians, axis=0)

    if all(np.ptp(g) == 0.0 for g in grouped):  # nothing to resample: simulated times without noise
        low = high = centre
    else:
        ends = stats.bootstrap(
            tuple(np.arange(len(g)) for g in grouped),
            statistic,
            n_resamples=draws or max(RESAMPLES, math.ceil(2 * BEYOND / (1.0 - level))),
            vectorized=True,
            batch=BATCH,
            confidence_level=level,
            method="percentile",
            rng=np.random.default_rng(seed),
        ).confidence_interval
        low, high = float(ends.low), float(ends.high)
    blocks = min(len(s) for s in series)
    return Interval(math.exp(centre), math.exp(min(low, centre)), math.exp(max(high, centre)), level, blocks)


def _group(values: np.ndarray) -> np.ndarray:
    """Consecutive values as rows of equal length; values at the front that fill no row are dropped."""
    length = group_length_of(len(values))
    rows = len(values) // length
    return values[len(values) - rows * length :].reshape(rows, length)


def _median_of_groups(groups: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    """The median over all values of the picked rows; indices may have further axes before the resampled one."""
    picked = np.moveaxis(np.asarray(indices), axis, -1).astype(int)
    values = groups[picked]
    return np.median(values.reshape(*picked.shape[:-1], -1), axis=-1)


def level_for_comparisons(comparisons: int, level: float = LEVEL) -> float:
    """The level of each of several intervals, such that all of them hold together at `level` (Bonferroni)."""
    return 1.0 - (1.0 - level) / max(1, comparisons)


def spread_of(control: Interval | None) -> float:
    """How far the A/A control's interval reaches from 1, as a fraction; infinite when there is none."""
    if control is None:
        return math.inf
    return max(control.high, 1.0 / control.low) - 1.0


def is_faster(speedup: Interval | None, aa_spread: float) -> bool:
    """Whether the interval shows a gain: its lower end is above 1 + the margin."""
    return speedup is not None and speedup.low > 1.0 + margin_of(aa_spread)
