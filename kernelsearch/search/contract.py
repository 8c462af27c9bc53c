"""What a search asks of its parts: a strategy that chooses, an evaluator that judges and times."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kernelsearch.core.types import Config, Measurement, Outcome, Proposal, Trial, Value
from kernelsearch.kernel.source import Kernel


@dataclass(frozen=True)
class Start:
    """What a strategy is given once: the seed kernel's digest, its space and config, and the run's seed and budget."""

    kernel: str
    space: Mapping[str, tuple[Value, ...]]
    config: Config
    seed: int = 0
    trials: int = 200

    def rng(self, number: int) -> random.Random:
        """The randomness of ask `number`: a function of (seed, number), so that asks in flight differ."""
        return random.Random(f"{self.seed}/{number}")


class Strategy(Protocol):
    """Chooses what to try next. Its state is a function of what it was told, and of nothing else.

    The search makes and tells trial 0, the seed, itself; asks begin at 1. Three members are optional:
    `weights() -> Mapping[str, float]`, relative odds of the edits, which the search puts into each
    `Request`; `rewrites = False`, for a strategy that only tunes: the search then ends the run when the
    configs are used up, where it would otherwise fall back to a rewrite; and `ordered = False`, for one that
    does not leave the seed's first configs to the tuner.
    """

    def ask(self, number: int) -> Proposal | None:
        """The proposal for trial `number`, or None when there is nothing left to try."""

    def tell(self, trial: Trial) -> None:
        """One finished trial; trials are told in ask order."""


class Evaluator(Protocol):
    """Gives a candidate its verdict and its time. May be called from several threads at once.

    One member is optional: `complete(kernel, config, outcome) -> Outcome`, which gives an outcome a verdict at full
    depth; the search calls it for each new best that has only passed the `screen`.
    """

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        """The outcome of one candidate; never raises for what a candidate did.

        incumbent is the best measurement so far, so that a clearly worse candidate can be abandoned early.
        """
