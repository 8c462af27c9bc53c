"""The progress of a run in one line: trial, best so far against the seed, verdict counts, rate, time left.

On a terminal the line is rewritten in place. A file or a pipe gets a plain line for each new best and for each tenth of
the budget.
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from kernelsearch.core import formats
from kernelsearch.core.types import Trial
from kernelsearch.search import Progress

REDRAW_SECONDS = 0.1


RECENT_SECONDS = 30.0
LEAST = 8
"""The time left follows from the trials that landed in so many seconds, once so many did: the first ones wait for
caches, imports and long verdicts."""


def format_progress(progress: Progress, per_second: float | None = None) -> str:
    """The progress after one more trial; per_second is the recent rate, if it is known."""
    parts = [f"trial {progress.done}/{progress.total}"]
    if progress.best:
        evidence = progress.best.outcome.measurement.evidence.value
        parts.append(f"best {formats.format_speedup(progress.best.score, evidence)}")
    accepted = progress.counts.get("accept", 0)
    rejected = [f"{n} {formats.format_verdict(w)}" for w, n in progress.counts.most_common() if w != "accept"]
    parts.append(", ".join([f"{accepted} accepted", *rejected]))
    if per_second:
        parts.append(f"{per_second:.1f}/s" if per_second >= 1 else f"{1 / per_second:.1f} s each")
        parts.append(f"{formats.format_duration((progress.total - progress.done) / per_second)} left")
    if progress.spent:
        parts.append(progress.spent)
    return "  ".join(parts)


class Pace:
    """The rate at which trials landed lately; those that were replayed do not count."""

    def __init__(self) -> None:
        from rich.progress import Progress as Bars

        self._seconds = 0.0
        self._bars = Bars(get_time=lambda: self._seconds, speed_estimate_period=RECENT_SECONDS, disable=True)
        self._task = self._bars.add_task("", total=None)

    def tell(self, progress: Progress) -> float | None:
        """The trials per second after this one; None before enough landed."""
        self._seconds = progress.seconds
        self._bars.update(self._task, completed=progress.done - progress.replayed)
        return (self._bars.tasks[0].speed or None) if progress.done - progress.replayed >= LEAST else None


class ProgressLine:
    """The `on_trial` of `Search.run`. Close it (or leave its `with`) before you write anything else."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self._drawn = 0.0
        self._best: int | None = None
        self._pending = ""
        self._pace = Pace()

    def __call__(self, trial: Trial, progress: Progress) -> None:
        text = format_progress(progress, self._pace.tell(progress))
        if self.live:
            self._pending = text
            if time.monotonic() - self._drawn >= REDRAW_SECONDS or progress.done == progress.total:
                self._draw()
            return
        is_best = progress.best is not None and progress.best.number != self._best
        step = max(1, progress.total // 10)
        replaying = progress.done < progress.replayed
        if not replaying and (is_best or progress.done % step == 0):
            print(text, file=self.stream, flush=True)
        self._best = progress.best.number if progress.best else None

    def note(self, text: str) -> None:
        """Writes a sentence on its own line without disturbing the progress."""
        print(f"\r\x1b[K{text}" if self.live else text, file=self.stream, flush=True)

    def close(self) -> None:
        """Draws the last pending progress and ends the line."""
        if self.live and (self._pending or self._drawn):
            self._draw()
            print(file=self.stream, flush=True)
            self._drawn = 0.0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _draw(self) -> None:
        if self._pending:
            width = shutil.get_terminal_size().columns
            print(f"\r\x1b[K{self._pending[: max(1, width - 1)]}", end="", file=self.stream, flush=True)
            self._drawn, self._pending = time.monotonic(), ""
