"""A word to who waits: what is being done, once it has taken a few seconds, and again while it takes longer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]

FIRST_S = 5.0
AGAIN_S = 30.0
"""Seconds of silence before the first word, and between one and the next."""


@contextmanager
def patience(say: Say | None, doing: str, first_s: float | None = None, again_s: float | None = None) -> Iterator[None]:
    """Inside it, `doing` is said with the seconds that have passed, from a thread of its own; say None: never."""
    if say is None:
        yield
        return
    done, start = threading.Event(), time.monotonic()

    def speak() -> None:
        wait = FIRST_S if first_s is None else first_s
        while not done.wait(wait):
            say(f"{doing}: {time.monotonic() - start:.0f} s so far")
            wait = AGAIN_S if again_s is None else again_s

    speaker = threading.Thread(target=speak, daemon=True, name="speaking")
    speaker.start()
    try:
        yield
    finally:
        done.set()
        speaker.join()
