"""Proposers of an arm's runs: typed edits that all runs share, or models with budgets of the run's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kernelsearch.propose import proposers
from kernelsearch.propose.contract import Proposer
from kernelsearch.propose.engines import Opened
from kernelsearch.propose.mixed import Limits
from kernelsearch.propose.proposers import Place
from kernelsearch.propose.typed_edits import TypedEdits
from kernelsearch.search.study.definition import Arm


@dataclass
class Proposers:
    """Opens the proposers of runs. The typed edits remember their results for the parents that runs share."""

    trials: int
    say: Callable[[str], None]
    edits: Proposer = field(default_factory=TypedEdits)
    engines: Opened = field(default_factory=Opened)

    def opened(self, arm: Arm, place: Place) -> Proposer:
        """The proposer of one run, to be closed with `proposers.close`. Raises ModelError."""
        edits = None if arm.model.specs else self.edits  # runs with a model may ask on threads of their own
        return proposers.opened(arm.opening, place, Limits(self.trials), self.say, edits, self.engines.engine)

    def close(self) -> None:
        self.engines.close()
