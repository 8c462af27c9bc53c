"""An evaluator that first looks a candidate up, so that nothing is measured twice in one database.

Of a known candidate (same kernel and config) the whole outcome is taken; of known work (the same machine code
launched in the same way) the measurement and the `screen` verdict. Either counts as a trial all the same, and its
row names the candidate that was measured. A reuse needs the same task, shapes, device, protocol and versions. Results
that may differ on another day (a timeout, a crash) are never reused. Machine code that raced once in many runs is
rejected from then on, whatever else is known of it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from kernelsearch.core.timed_shapes import Points, is_settled, place_shapes
from kernelsearch.core.types import Config, Measurement, Outcome, TaskFacts, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import Run, candidate_digest
from kernelsearch.record.store import Store
from kernelsearch.trial.bench import versions
from kernelsearch.trial.evaluator import Evaluator, TaskEvaluator
from kernelsearch.trial.rejection import CHANCE
from kernelsearch.worker.messages.jobs import REPEATED

RECENT = 4096
"""Outcomes of this process that stay in memory; older ones are in the database."""


@dataclass(frozen=True)
class ReuseTerms:
    """Terms of a reuse: the task, where its timed shapes lie, and where, how and by which versions they were timed."""

    task: str
    points: Points
    target: str
    referee: str
    protocol: str
    versions: Mapping[str, str]

    @classmethod
    def of(cls, evaluation: TaskEvaluator, facts: TaskFacts) -> ReuseTerms:
        """The terms of an evaluation's outcomes; facts are narrowed to the shapes that it times."""
        points = place_shapes(facts.shapes)
        return cls(facts.digest, points, evaluation.bench.where, evaluation.mode, evaluation.protocol, versions())

    def allow(self, run: Run, outcome: Outcome, incumbent: Measurement | None) -> bool:
        """Whether a stored outcome may stand for a new one that would be measured against this incumbent."""
        same = (run.task, run.facts.target, dict(run.facts.versions)) == (self.task, self.target, dict(self.versions))
        return same and outcome.verdict.referee.mode == self.referee and self.is_usable(outcome, incumbent)

    def is_usable(self, outcome: Outcome, incumbent: Measurement | None) -> bool:
        if outcome.measurement is None:
            return outcome.verdict.word not in CHANCE and outcome.verdict.stage != "estimate"
        if outcome.measurement.protocol != self.protocol:
            return False
        times = outcome.measurement.by_shape
        if outcome.measurement.abandoned or not times.keys() >= self.points.keys():
            return incumbent is not None and is_settled(self.points, times, incumbent.by_shape)
        return True


def has_raced(outcome: Outcome) -> bool:
    """Whether one of many runs at a timed shape gave another answer, which luck may hide the next time."""
    return outcome.verdict.word is Word.RACE and REPEATED in outcome.verdict.detail


@dataclass
class ReusingEvaluator(Evaluator):
    """Evaluates each candidate and each work once, through `inner`; may be called from several threads.

    store has the earlier runs, None for this process alone.
    """

    inner: Evaluator
    terms: ReuseTerms
    store: Store | None = None
    _recent: OrderedDict[str, tuple[str, Outcome]] = field(default_factory=OrderedDict)
    _claims: dict[str, threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        candidate = candidate_digest(self.terms.task, kernel.digest, config)
        with self._claim(candidate):
            known = self._find(candidate, "", incumbent)
            if known is not None:
                return known
            work = self.inner.work(kernel, config)
            if not work:
                return self._remember(candidate, self.inner.evaluate(kernel, config, incumbent))
            with self._claim(work):
                known = self._find("", work, incumbent)
                outcome = known if known is not None else self.inner.evaluate(kernel, config, incumbent)
                return self._remember(candidate, replace(outcome, work=work))

    def complete(self, kernel: Kernel, config: Config, outcome: Outcome) -> Outcome:
        """The outcome with a `full` verdict."""
        if outcome.verdict.depth == "full":
            return outcome
        candidate = candidate_digest(self.terms.task, kernel.digest, config)
        known = self._find("", outcome.work, None) if outcome.work else None
        if known is not None and has_raced(known):
            return self._remember(candidate, replace(known, work=outcome.work))
        return self._remember(candidate, self.inner.complete(kernel, config, outcome))

    def _find(self, candidate: str, work: str, incumbent: Measurement | None) -> Outcome | None:
        known = self._find_recent(candidate or work, incumbent) or self._find_stored(candidate, work, incumbent)
        if known is None:
            return None
        whose, outcome = known
        outcome = replace(outcome, measured_by=outcome.measured_by or whose, seconds=0.0)
        if work and outcome.verdict.accepted:  # other binaries may differ at shapes that only `full` looks at
            return replace(outcome, verdict=replace(outcome.verdict, depth="screen"))
        return outcome

    def _find_recent(self, key: str, incumbent: Measurement | None) -> tuple[str, Outcome] | None:
        with self._lock:
            recent = self._recent.get(key)
        return recent if recent and self.terms.is_usable(recent[1], incumbent) else None

    def _find_stored(self, candidate: str, work: str, incumbent: Measurement | None) -> tuple[str, Outcome] | None:
        for run, whose, outcome in self.store.load_evaluations(candidate, work) if self.store else ():
            if self.terms.allow(run, outcome, incumbent):
                return whose, outcome
        return None

    def _remember(self, candidate: str, outcome: Outcome) -> Outcome:
        with self._lock:
            for key in filter(None, (candidate, outcome.work)):
                if key == candidate or key not in self._recent or not has_raced(self._recent[key][1]):
                    self._recent[key] = (candidate, outcome)
                self._recent.move_to_end(key)
            while len(self._recent) > RECENT:
                self._recent.popitem(last=False)
        return outcome

    @contextmanager
    def _claim(self, key: str) -> Iterator[None]:
        """Lets one thread at a time evaluate a key; the second one then finds the first one's outcome."""
        with self._lock:
            mine = self._claims.setdefault(key, threading.Lock())
        with mine:
            yield
        with self._lock:
            if not mine.locked():
                self._claims.pop(key, None)
