"""Estimated times as predictions before anything is measured, and how far measured times confirm them.

Estimates are a cheap stand-in for times, as in co-kriging (Kennedy and O'Hagan, 2000; in its recursive form Le Gratiet
and Garnier, 2014): the logarithm of a time is `trust` times the estimate's, plus a process of its own. The estimates of
some configs become a process over all of them. Trust is a ridge regression of measured on estimated times: it shrinks
where estimates turn out to be useless.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernelsearch.tune.gaussian_process import GaussianProcess

TRUST, DOUBT = 0.8, 0.3
"""Mean and standard deviation of the trust before anything was measured."""
APART = 0.6
"""The expected distance of times from their estimates before anything is measured, over the spread of the estimates; it
follows from a rank correlation of 0.8, which the static model has on the median space."""
WEIGHT = 4.0
"""The first guess counts as this many measured configs."""
MOST_TRUST = 1.5


class Estimates:
    """A process over the logarithms of estimated times at some points of a space; points are rows of ranks.

    times has a row per point and a column per shape.
    """

    def __init__(self, distances: list[np.ndarray], points: np.ndarray, times: Sequence[np.ndarray]) -> None:
        values = np.log(np.array(times)).reshape(len(times), -1)
        self.apart = APART * float(values.std(0).mean()) + 1e-9
        self._process = GaussianProcess(distances)
        self._process.learn(points, values)
        self._process.fit(points, values)

    def predict(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the logarithm of the estimate at each point."""
        return self._process.predict(points)

    def fit_trust(self, estimated: np.ndarray, measured: np.ndarray) -> tuple[float, float]:
        """(Share of an estimate to believe, distance of times from that); both are logarithms, a column per shape."""
        trust, apart = TRUST, self.apart
        if len(measured):
            x, y = estimated - estimated.mean(0), measured - measured.mean(0)
            columns = measured.shape[1]
            for _ in range(3):  # each depends on the other
                prior, data = 1.0 / DOUBT**2, np.vdot(x, x) / columns / apart**2
                trust = float((TRUST * prior + np.vdot(x, y) / columns / apart**2) / (prior + data))
                trust = min(max(trust, 0.0), MOST_TRUST)
                rest = y - trust * x
                apart = float(np.sqrt((WEIGHT * self.apart**2 + np.vdot(rest, rest) / columns) / (WEIGHT + len(y))))
        return trust, apart
