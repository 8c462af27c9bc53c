"""The settings of a search, its progress and its result."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelsearch.core.types import Config, ShapeFact, Trial
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.contract import Rewrite
from kernelsearch.record.rows import Run, RunFacts
from kernelsearch.search.contract import Strategy

DRAWN = 4
"""Configs of the seed that are compiled ahead, for each candidate in flight."""
ASKED = 8


Ordered = Callable[[Kernel, Sequence[Config]], Sequence[tuple[Config, Sequence[float]]]]


@dataclass(frozen=True)
class FirstAsks:
    """Which configs of the seed are tried first: of `drawn` random ones, the first `asked` in the order of `ordered`.

    ordered(kernel, configs) gives those that are worth a trial with estimated microseconds by shape, the most promising
    first (`first_asks.order_configs`); it is called while the seed is evaluated, when the compilers have nothing else
    to do. Afterwards the tuner relies on the estimates as far as measurements confirm them.
    """

    ordered: Ordered
    drawn: int
    asked: int

    @classmethod
    def of(cls, ordered: Ordered, window: int) -> FirstAsks:
        """The numbers that did well in replays (studies/strategies/findings.md), by the window and not by the cores."""
        return cls(ordered, DRAWN * window, ASKED)

    def as_facts(self) -> dict[str, list[int]]:
        """Settings that must match on resume."""
        return {"first": [self.drawn, self.asked]}


@dataclass(frozen=True)
class Settings:
    """Settings of a run: facts are stored and must match on resume; the rest may differ.

    workers is how many threads call the evaluator, None for as many as the window. first orders the seed's first
    configs, None leaves them to the tuner; it is not used for a strategy with `ordered = False`. anew makes a fresh
    strategy when the run is replayed because a `full` verdict rejected a trial; without it the run waits for every such
    verdict. starts are the kernels that the run begins with, before the strategy is asked.
    """

    facts: RunFacts
    workers: int | None = None
    budget_seconds: float | None = None
    first: FirstAsks | None = None
    anew: Callable[[], Strategy] | None = None
    starts: tuple[Rewrite, ...] = ()


@dataclass(frozen=True)
class Progress:
    """How far a run is, after one more trial.

    seconds counts this process only, which told the run's stored trials, `replayed` of them, first at no cost.
    reached is the run's score: the geometric mean over the shapes of the best time over the seed's.
    landed trials are evaluated; those beyond `done` await the verdict on a new best. spent is the models' cost in
    words, empty without one.
    """

    done: int
    total: int
    replayed: int
    best: Trial | None
    counts: Counter[str]
    seconds: float
    spent: str = ""
    landed: int = 0
    reached: float = math.inf

    @property
    def evaluated(self) -> int:
        """Trials that are done or only await a verdict."""
        return max(self.done, self.landed)


@dataclass(frozen=True)
class Drawn:
    """Shapes that were drawn between a task's own, and what its table's candidates take there, in microseconds."""

    shapes: Sequence[ShapeFact]
    times: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Result:
    """How a run ended. per_shape has the best trial of every timed shape; used_up: no candidate was left;
    drawn are times between the shapes, regret is what its table costs at others there (`between.time_between`).

    trials are read lazily, so the store must be open then.
    """

    run: Run
    trials: Sequence[Trial]
    best: Trial | None
    per_shape: dict[str, Trial]
    seconds: float
    interrupted: bool = False
    used_up: bool = False
    drawn: Drawn | None = None
    regret: Mapping[str, Any] | None = None
