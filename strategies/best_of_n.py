"""Best of n: independent rewrites of the seed, each tuned a little, the best one kept.

The comparison that evolution must beat at equal budget: the same edits and the same tuner, but no
rewrite builds on another (Chen et al., 2021, sample language models like this; so does KernelBench).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kernelsearch.core.types import SAMPLER, Proposal, ProposalKind, Trial
from kernelsearch.search.contract import Start


@dataclass(frozen=True)
class Params:
    """tuning: how many trials an accepted rewrite gets, its first one included; half of them step from its best config,
    sampler chooses the others.
    """

    tuning: int = 6
    sampler: str = SAMPLER


@dataclass
class Strategy:
    params: Params
    start: Start
    tried: Counter[str] = field(default_factory=Counter)
    accepted: set[str] = field(default_factory=set)

    def ask(self, number: int) -> Proposal | None:
        rng = self.start.rng(number)
        unfinished = [d for d, tried in self.tried.items() if d in self.accepted and tried < self.params.tuning]
        # Asks in flight cannot see each other: in proportion to what is left, some of them rewrite.
        if unfinished and rng.random() < 1 - 1 / self.params.tuning:
            sampler = "neighbour" if rng.random() < 0.5 else self.params.sampler
            return Proposal(ProposalKind.RETUNE, (rng.choice(unfinished),), sampler=sampler)
        return Proposal(ProposalKind.REWRITE, (self.start.kernel,))

    def tell(self, trial: Trial) -> None:
        self.tried[trial.kernel] += 1
        if trial.accepted:
            self.accepted.add(trial.kernel)
