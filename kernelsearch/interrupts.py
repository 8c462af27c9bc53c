"""Ctrl-C as a count: the first one asks a run to finish what is in flight, the second one ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable


class Interrupts:
    """Counts Ctrl-C inside its `with`: the first one is noted, the second one raises KeyboardInterrupt.

    Outside the main thread, where signals cannot be handled, it counts nothing.
    """

    def __init__(self) -> None:
        self.count = 0
        self._before: signal.Handlers | Callable | int | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._noted)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _noted(self, *_: object) -> None:
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt
