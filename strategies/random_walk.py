"""Random walk: now and then a random rewrite of a random accepted kernel, otherwise a random config.

The control: it never looks at a score, so a strategy that does not beat it has learnt nothing.
After the random search that Bergstra and Bengio (2012) use as the yardstick of hyper-parameter search.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelsearch.core.types import Proposal, ProposalKind, Trial
from kernelsearch.search.contract import Start


@dataclass(frozen=True)
class Params:
    """rewrite: the chance that an ask proposes a new structure."""

    rewrite: float = 0.3


class Strategy:
    ordered = False

    def __init__(self, params: Params, start: Start) -> None:
        self.params, self.start = params, start
        self.accepted = {start.kernel: None}  # a dict as an ordered set

    def ask(self, number: int) -> Proposal | None:
        rng = self.start.rng(number)
        parent = (rng.choice(list(self.accepted)),)
        if rng.random() < self.params.rewrite:
            return Proposal(ProposalKind.REWRITE, parent)
        return Proposal(ProposalKind.RETUNE, parent, sampler="random")

    def tell(self, trial: Trial) -> None:
        if trial.accepted:
            self.accepted[trial.kernel] = None
