"""The trials that a run was told, and their results: the best, the best per shape, the unit of every score."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace

from kernelsearch.core.errors import TaskError
from kernelsearch.core.formats import shorten_reason
from kernelsearch.core.timed_shapes import is_better_somewhere
from kernelsearch.core.types import Measurement, Outcome, ShapeTime, TaskFacts, Trial
from kernelsearch.record.rows import Structure, score_times
from kernelsearch.verify.cures import name_cures
from kernelsearch.verify.regime_words import WORDS


def score_of(trial: Trial | None) -> float:
    """The score of a trial, infinite without one."""
    return math.inf if trial is None or trial.score is None else trial.score


def time_of(trial: Trial | None, shape: str) -> float:
    """The time of a trial at a shape in microseconds, infinite without one."""
    measurement = trial.outcome.measurement if trial else None
    return math.inf if measurement is None else measurement.by_shape.get(shape, math.inf)


@dataclass
class RunState:
    """The state of a run after the trials that it was told; the store has the trials themselves.

    seed is the first trial. structures and by_kernel (the best trial) are by a kernel's digest, per_shape (the best
    trial) and best_times (its time there) by a shape's key.
    """

    task: TaskFacts
    seed: Trial | None = None
    count: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    structures: dict[str, Structure] = field(default_factory=dict)
    by_kernel: dict[str, Trial] = field(default_factory=dict)
    best: Trial | None = None
    per_shape: dict[str, Trial] = field(default_factory=dict)
    best_times: dict[str, ShapeTime] = field(default_factory=dict)

    def tell(self, trial: Trial) -> None:
        self.seed = self.seed or trial
        self.count += 1
        self.counts[trial.outcome.verdict.word.value] += 1
        measurement = trial.outcome.measurement
        if measurement is None or measurement.abandoned:
            return
        if score_of(trial) < score_of(self.best):
            self.best = trial
        if score_of(trial) < score_of(self.by_kernel.get(trial.kernel)):
            self.by_kernel[trial.kernel] = trial
        known = {s.key: math.inf for s in self.task.shapes} | {t.shape: t.time_us for t in self.best_times.values()}
        for time in measurement.times:
            if is_better_somewhere({time.shape: time.time_us}, known or {time.shape: math.inf}):
                self.per_shape[time.shape], self.best_times[time.shape] = trial, time

    def rank_kernels(self) -> list[Trial]:
        """The best trial of every kernel that was measured, the fastest first."""
        return sorted(self.by_kernel.values(), key=lambda t: (t.score, t.number))

    @property
    def rival(self) -> Measurement | None:
        """The best times so far, each shape's by the trial that is best there; None before there are any."""
        if self.best is None or self.best.outcome.measurement is None:
            return None
        return replace(self.best.outcome.measurement, times=tuple(self.best_times.values()))

    @property
    def reached(self) -> float:
        """The score of the best times of all shapes together; infinite before there is one."""
        unit = self.seed.outcome.measurement if self.seed else None
        if unit is None or self.rival is None:
            return math.inf
        return score_times(self.rival.by_shape, unit.by_shape) or math.inf

    def beats(self, outcome: Outcome) -> bool:
        """Whether a candidate with this outcome would be the new best, over all shapes or at one."""
        if outcome.measurement is None or outcome.measurement.abandoned:
            return False
        if self.rival is None or is_better_somewhere(outcome.measurement.by_shape, self.rival.by_shape):
            return True
        return (self.score(outcome) or math.inf) < score_of(self.best)

    def score(self, outcome: Outcome) -> float | None:
        """What `score_times` says of its times beside the seed's. Raises TaskError when no shape is timed.

        An abandoned measurement was given up because it was slower than the best: its score is at least the best one.
        """
        if outcome.measurement is None:
            return None
        unit = (self.seed.outcome.measurement if self.seed else None) or outcome.measurement
        score = score_times(outcome.measurement.by_shape, unit.by_shape)
        if score is None:
            raise TaskError(f"{self.task.name} has no timed shape to compare kernels on")
        if outcome.measurement.abandoned and self.best:
            return max(score, score_of(self.best))
        return score


def explain_wrong_seed(task: TaskFacts, trial: Trial) -> str:
    """A sentence on why a search cannot begin: the verdict on the seed."""
    verdict = trial.outcome.verdict
    key = verdict.detail.get("shape")
    known = {s.key: s.label for s in (*task.shapes, *task.test_shapes)}
    label = verdict.detail.get("label") or known.get(str(key), key)
    regime = verdict.detail.get("regime")
    where = (f" on {label}" if label else "") + (f" (inputs: {WORDS.get(regime, regime)})" if regime else "")
    ratio, error = verdict.error_ratio, ""
    if ratio and math.isfinite(ratio) and "times what is allowed" not in verdict.reason:
        error = f" (its error is {ratio:.3g} times what is allowed)"
    more = "; `kernelsearch verify TASK.py --explain` says more" if regime else ""
    why = f"{verdict.word.value}, {shorten_reason(verdict.reason)}{error}{more}"
    said = f"the seed kernel of {task.name} is itself rejected{where}: {why}"
    return "\n".join([said, *name_cures(verdict, own=True)])
