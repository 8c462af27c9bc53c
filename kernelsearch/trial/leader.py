"""The fastest measurement of an opened task, so that only a new leader's `full` verdict is prepared ahead."""

from __future__ import annotations

import threading

from kernelsearch.core.types import Measurement
from kernelsearch.measure.timing import racing


class Lead:
    """The fastest measurement so far; safe to use from several threads.

    A candidate's incumbent is the best at the time of its ask. Of a dozen in flight beside the seed's own trial nearly
    all beat that one, and compiling what `full` needs for each of them kept the compilers from the others.
    """

    def __init__(self) -> None:
        self._fastest: dict[str, float] = {}
        self._lock = threading.Lock()

    def take(self, measurement: Measurement, incumbent: Measurement) -> bool:
        """Whether this measurement is whole and faster than its incumbent and than all earlier ones; then it leads."""
        times = measurement.by_shape
        if measurement.abandoned or not racing.is_faster(times, incumbent.by_shape):
            return False
        with self._lock:
            if self._fastest and not racing.is_faster(times, self._fastest):
                return False
            self._fastest = times
            return True
