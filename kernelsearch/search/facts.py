"""What a search is given, what it says on the way, and how it ends."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kernelsearch import space as spaces
from kernelsearch.record.rows import Run, RunFacts
from kernelsearch.types import Trial


@dataclass(frozen=True)
class Settings:
    """facts are what the run is repeated from and are stored; the rest may differ on resume.

    workers is how many threads call the evaluator, None for as many as the window; possible says which
    configs are worth a trial, None for what is known of the task.
    """

    facts: RunFacts
    workers: int | None = None
    budget_seconds: float | None = None
    possible: spaces.Predicate | None = None


@dataclass(frozen=True)
class Progress:
    """How far a run is, after one more trial. seconds counts this process only; replayed trials cost none.

    spent is what models have cost, in words; empty without one.
    """

    done: int
    total: int
    replayed: int
    best: Trial | None
    counts: Counter[str]
    seconds: float
    spent: str = ""


@dataclass(frozen=True)
class Result:
    """How a run ended. per_shape has the best trial of every timed shape; used_up: no candidate was left."""

    run: Run
    trials: tuple[Trial, ...]
    best: Trial | None
    per_shape: dict[str, Trial]
    seconds: float
    interrupted: bool = False
    used_up: bool = False
