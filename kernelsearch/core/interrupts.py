"""Ctrl-C as a count: the first one asks a run to finish what is in flight, the second one ends it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ALL_COMPLETED, Future, wait

POLL_S = 0.2
"""A wait looks so often whether there was a Ctrl-C that nothing was said about."""
FINISHING = "interrupted: what is in flight is being finished; a second Ctrl-C ends at once"


class Interrupts:
    """Counts Ctrl-C inside its `with`: the first one is noted, the second one raises KeyboardInterrupt.

    Outside the main thread, where signals cannot be handled, it counts nothing.

    ending says that this is the process's last work: after a Ctrl-C, further ones are ignored even after the `with`, so
    they cannot disturb the summary or the closing of files. Otherwise the previous handler is restored. say takes the
    sentence for the first one.
    """

    def __init__(self, ending: bool = False, say: Callable[[str], object] = lambda text: None) -> None:
        self.count = 0
        self.ending, self._say, self._said = ending, say, False
        self._before: signal.Handlers | Callable | int | None = None

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN if self.ending and self.count else self._before)

    def noted(self) -> bool:
        """Whether there was a Ctrl-C; says once what follows. The handler does not: it may interrupt a print."""
        if self.count and not self._said:
            self._said = True
            self._say(FINISHING)
        return self.count > 0

    def wait(self, futures: Collection[Future], return_when: str = ALL_COMPLETED) -> tuple[set[Future], set[Future]]:
        """`concurrent.futures.wait`; a Ctrl-C meanwhile is `noted`."""
        while True:
            self.noted()
            done, left = wait(futures, POLL_S, return_when)
            if not left or (done and return_when != ALL_COMPLETED):
                return done, left

    def reset(self) -> None:
        """Resets the count: the work was done before the interrupt."""
        self.count = 0

    def _note(self, *_: object) -> None:
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt
