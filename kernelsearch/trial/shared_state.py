"""The state that the threads of an evaluation share: values computed once, and the fastest measurement."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from kernelsearch.core.timed_shapes import is_better_somewhere
from kernelsearch.core.types import Measurement


class Once:
    """A memo of values by key, made by the thread that asks first while the others wait."""

    def __init__(self) -> None:
        self._memo: dict[str, Future] = {}
        self._doubted: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, key: str, make: Callable[[], Any], doubt: Callable[[Any], bool] = lambda _: False) -> Any:
        """The value of make(), computed once per key; an exception is remembered too.

        A value (or exception) that is in doubt is not remembered the first time: the next to ask, and whoever waited,
        makes it again.
        """
        with self._lock:
            known = self._memo.get(key)
            future = self._memo[key] = Future() if known is None else known
        if known is None:
            try:
                value = make()
                self._doubt(key, doubt(value))
                future.set_result(value)
            except BaseException as error:
                self._doubt(key, doubt(error))
                future.set_exception(error)
                raise
        else:
            future.exception()  # waits
            if self._memo.get(key) is not future:
                return self(key, make, doubt)
        return future.result()

    def _doubt(self, key: str, in_doubt: bool) -> None:
        """Forgets a key's value before anybody gets it, if it is in doubt for the first time."""
        with self._lock:
            if in_doubt and key not in self._doubted:
                self._doubted.add(key)
                del self._memo[key]


class Lead:
    """The best times so far, by shape, so that only a new leader's `full` verdict is prepared ahead.

    A candidate's incumbent is the best at the time of its ask. While that is the seed, nearly all of a dozen candidates
    in flight beat it, and compiling what `full` needs for each of them would keep the compilers busy.
    """

    def __init__(self) -> None:
        self._fastest: dict[str, float] = {}
        self._lock = threading.Lock()

    def take(self, measurement: Measurement, incumbent: Measurement) -> bool:
        """Whether this measurement beats its incumbent and all earlier ones at a shape; then it leads there."""
        times = measurement.by_shape
        if measurement.abandoned or not is_better_somewhere(times, incumbent.by_shape):
            return False
        with self._lock:
            if self._fastest and not is_better_somewhere(times, self._fastest):
                return False
            self._fastest |= {s: us for s, us in times.items() if us < self._fastest.get(s, math.inf)}
            return True
