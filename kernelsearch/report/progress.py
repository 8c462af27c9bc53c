"""Progress of a run on stderr: the trial, the best speed-up, verdict counts, rate, time left.

On a terminal it is a bar that is redrawn in place. A file, a pipe or a dumb terminal gets a plain line for each new
best and for each tenth of the budget.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TextIO, cast

from kernelsearch.core import formats
from kernelsearch.core.types import Trial
from kernelsearch.report.terminal import open_console, print_text, print_wrapped
from kernelsearch.search import Progress

if TYPE_CHECKING:
    from rich.highlighter import Highlighter
    from rich.progress import Progress as Bars

REDRAWS = 5
"""Times a second that the bar is drawn anew, for the seconds so far."""
BAR = 16
"""The bar's width in columns."""
ROOMY = 80
"""From so many columns on the bar has its width, the seconds so far and the rate."""


RECENT_SECONDS = 30.0
LEAST = 8
"""The time left follows from the trials that landed in so many seconds, once so many did: the first ones wait for
caches, imports and long verdicts."""
RECENT_TRIALS = 16
"""The window reaches back over as many trials, too: where each takes long, they land several at once."""
SMOOTH_SECONDS = 5.0
"""So slowly the expected end follows a new rate: after this time it has gone 63 % of the way."""


def format_progress(progress: Progress, timing: Sequence[str] = (), aside: str = "") -> str:
    """The progress after one more trial; timing is the rate and the time left, if known, aside is said last."""
    parts = [f"trial {progress.done}/{progress.total}", *list_results(progress), *timing]
    return "  ".join([*parts, *filter(None, [progress.spent, aside])])


def list_results(progress: Progress) -> list[str]:
    """The best so far, if there is one, and the verdicts."""
    measurement = progress.best.outcome.measurement if progress.best else None
    accepted = progress.counts.get("accept", 0)
    rejected = [f"{n} {formats.format_verdict(w)}" for w, n in progress.counts.most_common() if w != "accept"]
    counts = ", ".join([f"{accepted} accepted", *rejected])
    if measurement is None:
        return [counts]
    own = ", each shape its own" * (len(measurement.times) > 1)
    return [f"best {formats.format_speedup(progress.reached, measurement.evidence.value)}{own}", counts]


def format_rate(per_second: float) -> str:
    """`2.0/s`, or `3.0 s each` where one takes longer than a second."""
    return f"{per_second:.1f}/s" if per_second >= 1 else f"{1 / per_second:.1f} s each"


class Pace:
    """The rate at which trials landed lately, and when the run may end; trials that were replayed do not count.

    Trials land several at once, after a pause. The time left counts down in the pause, at most to what it will be after
    it; the expected end follows the rate of a moving window, smoothed.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()  # one is as old as the window, or older
        self._ends: float | None = None
        self._least = 0.0  # the time left after the longest pause of the window

    def tell(self, progress: Progress) -> float | None:
        """The trials per second now; None before enough landed."""
        rate = self._compute_rate(progress)
        if rate is not None:
            pauses = (later - sooner for (sooner, _), (later, _) in pairwise(self._samples))
            left, elapsed = (progress.total - progress.evaluated) / rate, self._samples[-1][0] - self._samples[-2][0]
            self._least = max(left - max(pauses), 0.0)
            drift = 0.0 if self._ends is None else self._ends - (progress.seconds + left)
            drift = min(max(drift, -left / 2), left / 2)  # near the end what was expected before says little
            self._ends = progress.seconds + left + drift * math.exp(-elapsed / SMOOTH_SECONDS)
        return rate

    def predict_left(self, seconds: float) -> float | None:
        """The time left when the run is so old; None before the rate is known."""
        return None if self._ends is None else max(self._ends - seconds, self._least)

    def _compute_rate(self, progress: Progress) -> float | None:
        samples = self._samples
        if progress.evaluated <= progress.replayed:
            samples.clear()
        samples.append((progress.seconds, progress.evaluated))
        since, first = progress.seconds - RECENT_SECONDS, progress.evaluated - RECENT_TRIALS
        while len(samples) > 2 and samples[1][0] <= since and samples[1][1] <= first:
            samples.popleft()
        (since, first), (now, last) = samples[0], samples[-1]
        if last - progress.replayed < LEAST or last <= first:
            return None
        return (last - first) / max(now - since, 1e-3)


class ProgressLine:
    """The `on_trial` of `Search.run`, within its `with`. Sentences that others print meanwhile stand above the bar.

    aside() is said at the end of each line.
    """

    def __init__(self, stream: TextIO | None = None, aside: Callable[[], str] = str) -> None:
        self.stream, self._aside = stream or sys.stderr, aside
        self._reached = math.inf
        self._pace = Pace()
        self._rate: float | None = None
        self._told: tuple[Progress, float] | None = None  # the last progress, and when it was told
        self._bars = _make_bars(self.stream, self._format_timing)
        self._ending = False

    def __call__(self, trial: Trial, progress: Progress) -> None:
        is_best = progress.reached < self._reached
        step = max(1, progress.total // 10)
        self._reached = progress.reached
        self._told = (progress, time.monotonic())
        if progress.done <= progress.replayed:
            return
        if self._bars is not None:
            self._draw(self._bars, progress)
        elif is_best or progress.done % step == 0:
            print(format_progress(progress, self._list_timing(progress), self._aside()), file=self.stream, flush=True)

    def tell_landed(self, progress: Progress) -> None:
        """The `on_landed` of `Search.run`: the pace, and the bar."""
        self._rate, self._told = self._pace.tell(progress), (progress, time.monotonic())
        if self._bars is not None and progress.done and progress.evaluated > progress.replayed:
            self._draw(self._bars, progress)

    def note(self, text: str) -> None:
        """Writes a sentence on its own line without disturbing the progress."""
        if self._bars is not None:
            print_wrapped(text, self._bars.console)
        else:
            print_text(text, self.stream)

    def tell_interrupted(self, text: str) -> None:
        """Writes what a Ctrl-C does; the budget that is left says no longer when it ends."""
        self._ending = True
        self.note(text)

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    def _draw(self, bars: Bars, progress: Progress) -> None:
        if not bars.tasks:
            bars.add_task("", total=progress.total, completed=progress.evaluated, results="")
            bars.tasks[0].start_time = bars.get_time() - progress.seconds
            bars.start()
        results = "  ".join([*list_results(progress), *filter(None, [progress.spent, self._aside()])])
        bars.update(bars.task_ids[0], completed=progress.evaluated, total=progress.total, results=results)
        bars.tasks[0].finished_time = None  # its clock goes on: what landed is not yet judged

    def _list_timing(self, progress: Progress) -> list[str]:
        """The rate and the time left, at this moment; what is going on once every trial has landed."""
        if progress.evaluated == progress.total:
            return ["judging new bests"] if progress.done < progress.total else []
        since = time.monotonic() - self._told[1] if self._told else 0.0
        left = self._pace.predict_left(progress.seconds + since)
        if not self._rate or left is None:
            return []
        late = progress.total - progress.evaluated if left < 1.0 else 0  # no rate says when these land
        waits = f"waiting for {formats.format_count(late, 'trial')}"
        return [format_rate(self._rate), waits if late else f"trials: {formats.format_duration(left)} left"]

    def _format_timing(self) -> str:
        """What the bar says of time, each time that it is drawn."""
        if self._ending:
            return "finishing"
        timing = self._list_timing(self._told[0]) if self._told else []
        return "  ".join(timing if self._bars and self._bars.console.width >= ROOMY else timing[-1:])


def _make_bars(stream: TextIO, format_timing: Callable[[], str]) -> Bars | None:
    """The bar, not yet drawn, where the stream is a terminal that can redraw a line.

    format_timing is asked each time, so that the time left counts down between two trials.
    """
    if not stream.isatty() or (console := open_console(stream)).is_dumb_terminal:
        return None
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars
    from rich.table import Column
    from rich.text import Text

    class Timing(ProgressColumn):
        """The rate and the time left."""

        def render(self, task: object) -> Text:
            return Text(format_timing())

    rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
    words = cast("Highlighter", console.highlighter)
    roomy = console.width >= ROOMY
    return Bars(
        MofNCompleteColumn(),
        BarColumn(BAR if roomy else BAR // 3),
        *([TimeElapsedColumn()] if roomy else []),
        Timing(Column(no_wrap=True)),
        TextColumn("{task.fields[results]}", markup=False, highlighter=words, table_column=rest),
        console=console,
        expand=True,
        refresh_per_second=REDRAWS,
        redirect_stdout=False,
    )
