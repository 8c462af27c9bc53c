"""The contract of a strategy, what each is made with, and the strategy that only tunes."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kernelsearch.core.types import SAMPLER, Config, Proposal, ProposalKind, Trial, Value


@dataclass(frozen=True)
class Start:
    """What a strategy starts from: the seed kernel's digest, its space and config, the run's seed and budget.

    list_edits gives the names of the edits that apply to the seed, where the proposer knows them; it may take a second.
    usual_gains are the log gains that edits, by name, had in the mean on other tasks (absent: 0). several says that
    groups of the space's names decide the times of different functions.
    """

    kernel: str
    space: Mapping[str, tuple[Value, ...]]
    config: Config
    seed: int = 0
    trials: int = 200
    list_edits: Callable[[], tuple[str, ...]] = tuple
    usual_gains: Mapping[str, float] = field(default_factory=dict)
    several: bool = False

    def rng(self, number: int) -> random.Random:
        """The randomness of ask `number`: a function of (seed, number), so that asks in flight differ."""
        return random.Random(f"{self.seed}/{number}")


class Strategy(ABC):
    """Chooses what to try next. Its state is a function of the trials that it was told, and of nothing else.

    The search makes and tells trial 0, the seed, itself; asks begin at 1. With `rewrites = False`, for a strategy that
    only tunes, the search ends the run when the configs are used up, where it would otherwise fall back to a rewrite.
    With `ordered = False` the strategy does not leave the seed's first configs to the tuner.
    """

    rewrites = True
    ordered = True

    @abstractmethod
    def ask(self, number: int) -> Proposal | None:
        """The proposal for trial `number`, or None when there is nothing left to try."""

    @abstractmethod
    def tell(self, trial: Trial) -> None:
        """One finished trial; trials are told in ask order."""

    def expect(self, kernel: str, ratio: float) -> None:  # noqa: B027
        """What the static model says of a new kernel: at the config that its tuner gives next it takes this share.

        ratio is below 1, of the estimated time at the config that the kernel was first tried at.
        """

    def weights(self) -> Mapping[str, float]:
        """Relative odds of the edits by name (absent: 1), which the search puts into each `Request`."""
        return {}


@dataclass(frozen=True)
class TunerAlone(Strategy):
    """Only tunes the seed, by one sampler."""

    start: Start
    sampler: str = SAMPLER
    rewrites = False

    def ask(self, number: int) -> Proposal | None:
        return Proposal(ProposalKind.RETUNE, (self.start.kernel,), sampler=self.sampler)

    def tell(self, trial: Trial) -> None:
        """The search tells the tuner itself."""
