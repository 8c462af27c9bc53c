"""Nothing is measured twice in one database: an evaluator that first looks for what is known of a candidate.

Known by candidate (same kernel and config), the whole outcome is taken; known by work (the same machine code
launched in the same way), the measurement and the `screen` verdict. Either counts as a trial all the same, and its
row says whose measurement it is. A reuse needs the same task, shapes, device, protocol and versions; what may come
out otherwise on another day (a timeout, a crash) is never reused.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kernelsearch.core.types import Config, Measurement, Outcome, TaskFacts, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.timing import racing
from kernelsearch.record.rows import Run, candidate_digest
from kernelsearch.record.store import Store

RECENT = 4096
"""Outcomes of this process that are kept at hand; older ones are in the database."""

_CHANCE = (Word.TIMEOUT, Word.CRASH)


class Evaluating(Protocol):
    """What is asked when nothing is known: an evaluator that can also say what would run, and judge at full depth."""

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome: ...

    def complete(self, kernel: Kernel, config: Config, outcome: Outcome) -> Outcome: ...

    def work(self, kernel: Kernel, config: Config) -> str: ...


@dataclass(frozen=True)
class Terms:
    """What must be equal for a reuse: the task and its timed shapes, and where, how and with what they were measured."""

    task: str
    shapes: tuple[str, ...]
    target: str
    referee: str
    protocol: str
    versions: Mapping[str, str]

    def allow(self, run: Run, outcome: Outcome, incumbent: Measurement | None) -> bool:
        """Whether a stored outcome may stand for a new one that would be measured against this incumbent."""
        same = (run.task, run.facts.target, dict(run.facts.versions)) == (self.task, self.target, dict(self.versions))
        return same and outcome.verdict.referee.mode == self.referee and self.usable(outcome, incumbent)

    def usable(self, outcome: Outcome, incumbent: Measurement | None) -> bool:
        if outcome.measurement is None:
            return outcome.verdict.word not in _CHANCE and outcome.verdict.stage != "estimate"
        if outcome.measurement.protocol != self.protocol:
            return False
        if outcome.measurement.abandoned:  # it must be as hopeless against this incumbent
            if incumbent is None:
                return False
            return racing.hopeless(outcome.measurement.by_shape, incumbent.by_shape, len(self.shapes))
        return {t.shape for t in outcome.measurement.times} >= set(self.shapes)


@dataclass
class Reusing:
    """Evaluates through `inner`, each candidate and each work once; may be called from several threads.

    store is where earlier runs are looked up, None for this process alone.
    """

    inner: Evaluating
    terms: Terms
    store: Store | None = None
    _recent: OrderedDict[str, tuple[str, Outcome]] = field(default_factory=OrderedDict)
    _claims: dict[str, threading.Lock] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        candidate = candidate_digest(self.terms.task, kernel.digest, config)
        with self._claimed(candidate):
            known = self._known(candidate, "", incumbent)
            if known is not None:
                return known
            work = self.inner.work(kernel, config)
            if not work:
                return self._kept(candidate, self.inner.evaluate(kernel, config, incumbent))
            with self._claimed(work):
                known = self._known("", work, incumbent)
                outcome = known if known is not None else self.inner.evaluate(kernel, config, incumbent)
                return self._kept(candidate, replace(outcome, work=work))

    def complete(self, kernel: Kernel, config: Config, outcome: Outcome) -> Outcome:
        """The outcome with a `full` verdict."""
        if outcome.verdict.depth == "full":
            return outcome
        candidate = candidate_digest(self.terms.task, kernel.digest, config)
        return self._kept(candidate, self.inner.complete(kernel, config, outcome))

    def _known(self, candidate: str, work: str, incumbent: Measurement | None) -> Outcome | None:
        found = self._at_hand(candidate or work, incumbent) or self._stored(candidate, work, incumbent)
        if found is None:
            return None
        whose, outcome = found
        outcome = replace(outcome, measured_by=outcome.measured_by or whose, seconds=0.0)
        if work and outcome.verdict.accepted:  # other binaries may differ at shapes that only `full` looks at
            return replace(outcome, verdict=replace(outcome.verdict, depth="screen"))
        return outcome

    def _at_hand(self, key: str, incumbent: Measurement | None) -> tuple[str, Outcome] | None:
        with self._lock:
            found = self._recent.get(key)
        return found if found and self.terms.usable(found[1], incumbent) else None

    def _stored(self, candidate: str, work: str, incumbent: Measurement | None) -> tuple[str, Outcome] | None:
        for run, whose, outcome in self.store.evaluations(candidate, work) if self.store else ():
            if self.terms.allow(run, outcome, incumbent):
                return whose, outcome
        return None

    def _kept(self, candidate: str, outcome: Outcome) -> Outcome:
        with self._lock:
            for key in filter(None, (candidate, outcome.work)):
                self._recent[key] = (candidate, outcome)
                self._recent.move_to_end(key)
            while len(self._recent) > RECENT:
                self._recent.popitem(last=False)
        return outcome

    @contextmanager
    def _claimed(self, key: str) -> Iterator[None]:
        """One evaluation of a key at a time: who comes second finds the first one's outcome."""
        with self._lock:
            mine = self._claims.setdefault(key, threading.Lock())
        with mine:
            yield
        with self._lock:
            if not mine.locked():
                self._claims.pop(key, None)


def terms(evaluation: Any, facts: TaskFacts, target: str, versions: Mapping[str, str]) -> Terms:
    """The terms of an `Evaluation`: facts are the run's, narrowed to what it times."""
    shapes = tuple(s.key for s in facts.shapes)
    return Terms(facts.digest, shapes, target, evaluation.mode, evaluation.protocol, versions)
