"""Who leads the measurements of an opened task, so that only a new leader's `full` verdict is prepared ahead."""

from __future__ import annotations

import threading

from kernelsearch.core.types import Measurement
from kernelsearch.measure.timing import racing


class Lead:
    """The fastest measurement seen so far; safe to ask from several threads.

    A candidate's incumbent is the best of when it was asked for: of a dozen in flight beside the seed's own trial nearly all
    are ahead of that, and to compile for each of them what `full` needs took the compilers from everybody.
    """

    def __init__(self) -> None:
        self._fastest: dict[str, float] = {}
        self._lock = threading.Lock()

    def taken(self, measurement: Measurement, incumbent: Measurement) -> bool:
        """Whether this measurement is whole and ahead of its incumbent and of all that were seen before."""
        times = measurement.by_shape
        if measurement.abandoned or not racing.faster(times, incumbent.by_shape):
            return False
        with self._lock:
            if self._fastest and not racing.faster(times, self._fastest):
                return False
            self._fastest = times
            return True
