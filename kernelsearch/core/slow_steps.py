"""Progress messages for slow steps: after a few seconds, and again while they last."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]

FIRST_S = 5.0
AGAIN_S = 30.0
"""Seconds before the first message, and between one and the next."""


@contextmanager
def report_progress(
    say: Say | None, doing: str | Callable[[], str], first_s: float | None = None, again_s: float | None = None
) -> Iterator[None]:
    """A context in which a thread says `doing` with the seconds so far, now and then; never if say is None.

    doing may be a function, asked each time: what is being done may change.
    """
    if say is None:
        yield
        return
    done, start = threading.Event(), time.monotonic()

    def speak() -> None:
        wait = FIRST_S if first_s is None else first_s
        while not done.wait(wait):
            say(f"{doing if isinstance(doing, str) else doing()}: {time.monotonic() - start:.0f} s so far")
            wait = AGAIN_S if again_s is None else again_s

    speaker = threading.Thread(target=speak, daemon=True, name="speaking")
    speaker.start()
    try:
        yield
    finally:
        done.set()
        speaker.join()
