"""The seams between stages: what a strategy, a proposer and an evaluator promise each other."""

from __future__ import annotations

import random
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kernelsearch.source import Kernel
from kernelsearch.types import Config, Hint, Measurement, Outcome, Proposal, TaskFacts, Trial, Value


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


@dataclass(frozen=True)
class Rewrite:
    """A new structure: the kernel (its config is where tuning starts), the edit's name, one sentence of why.

    parent is the digest of the kernel that it was made from, where that is not the request's (a repair).
    """

    kernel: Kernel
    edit: str
    rationale: str
    parent: str | None = None


@dataclass(frozen=True)
class Request:
    """What a proposer is asked for: a rewrite of parent that is not in seen.

    edit asks for one edit by name; weights are relative odds of the edits (absent: 1), as hints
    and the run's own gains set them. number is the ask; trial is the parent's best trial so far.
    """

    parent: Kernel
    task: TaskFacts
    seen: Container[str] = ()
    edit: str | None = None
    hints: tuple[Hint, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    number: int = 0
    trial: Trial | None = None


class Proposer(Protocol):
    """Turns a rewrite proposal into source.

    Two members are optional: `tell(trial, kernel, parent)`, which the search calls for every finished trial in ask
    order, with the trial's kernel and its parent's digest (None for the seed); and `spending() -> str`, what its models
    have cost so far, in a few words for the progress line.
    """

    def propose(self, request: Request, rng: random.Random) -> Rewrite | None:
        """A rewrite, or None when no edit of the parent gives anything new."""


class Evaluator(Protocol):
    """Gives a candidate its verdict and its time. May be called from several threads at once.

    One member is optional: `complete(kernel, config, outcome) -> Outcome`, which gives an outcome a verdict at full
    depth; the search calls it for each new best that has only passed the `screen`.
    """

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        """The outcome of one candidate; never raises for what a candidate did.

        incumbent is the best measurement so far, so that a clearly worse candidate can be abandoned early.
        """
