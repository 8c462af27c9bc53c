"""What estimates say of a space before anything is measured, and how far what was measured bears them out.

Estimates are a cheap stand-in for times, as in co-kriging (Kennedy and O'Hagan, 2000; in its recursive form Le Gratiet
and Garnier, 2014): the logarithm of a time is `trust` times the estimate's, plus a process of its own. The estimates of
some configs become a process over all of them. Trust is a ridge regression of what was measured on what was
estimated, so that it shrinks where estimates turn out to say nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernelsearch.tune.process import Process

TRUST, DOUBT = 0.8, 0.3
"""Mean and standard deviation of the trust before anything was measured."""
APART = 0.6
"""How far a time lies from what is estimated, before anything was measured, over the spread of the estimates: a rank
correlation of 0.8, which the static model has on the median space, leaves that."""
WEIGHT = 4.0
"""That first guess counts as so many configs."""
MOST_TRUST = 1.5


class Estimates:
    """A process over the logarithms of estimated times at some points of a space; points are rows of ranks."""

    def __init__(self, distances: list[np.ndarray], points: np.ndarray, times: Sequence[float]) -> None:
        values = np.log(np.array(times))
        self.apart = APART * float(values.std()) + 1e-9
        self._process = Process(distances)
        self._process.learn(points, values)
        self._process.fit(points, values)

    def at(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the logarithm of what would be estimated at each point."""
        return self._process.predict(points)

    def trust(self, estimated: np.ndarray, measured: np.ndarray) -> tuple[float, float]:
        """How much of an estimate to believe, and how far times lie from that, both from logarithms of times."""
        trust, apart = TRUST, self.apart
        if len(measured):
            x, y = estimated - estimated.mean(), measured - measured.mean()
            for _ in range(3):  # each depends on the other
                known, seen = 1.0 / DOUBT**2, (x @ x) / apart**2
                trust = (TRUST * known + (x @ y) / apart**2) / (known + seen)
                trust = min(max(trust, 0.0), MOST_TRUST)
                rest = y - trust * x
                apart = float(np.sqrt((WEIGHT * self.apart**2 + rest @ rest) / (WEIGHT + len(y))))
        return trust, apart
