"""Ctrl-C as a count: the first one asks a run to finish what is in flight, the second one ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable


class Interrupts:
    """Counts Ctrl-C inside its `with`: the first one is noted, the second one raises KeyboardInterrupt.

    Outside the main thread, where signals cannot be handled, it counts nothing.

    ending says that this is the process's last work: after a Ctrl-C, further ones are ignored even after the `with`, so
    they cannot disturb the summary or the closing of files. Otherwise the previous handler is restored.
    """

    def __init__(self, ending: bool = False) -> None:
        self.count = 0
        self.ending = ending
        self._before: signal.Handlers | Callable | int | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN if self.ending and self.count else self._before)

    def reset(self) -> None:
        """Resets the count: the work was done before the interrupt."""
        self.count = 0

    def _note(self, *_: object) -> None:
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt
