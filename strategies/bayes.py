"""Bayes: the tuner alone, over the seed's space; no structure is ever changed.

Bayesian optimisation with a Gaussian process (`kernelsearch/tune/surrogate.py`), the tuner that every other strategy
uses for numbers too. The comparison shows what rewriting adds.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelsearch.core.types import SAMPLER, Proposal, ProposalKind, Trial
from kernelsearch.search.contract import Start


@dataclass(frozen=True)
class Params:
    """neighbour: the chance that an ask steps from the best config instead; it gained nothing on recorded spaces."""

    neighbour: float = 0.0


class Strategy:
    rewrites = False

    def __init__(self, params: Params, start: Start) -> None:
        self.params, self.start = params, start

    def ask(self, number: int) -> Proposal | None:
        near = self.start.rng(number).random() < self.params.neighbour
        return Proposal(ProposalKind.RETUNE, (self.start.kernel,), sampler="neighbour" if near else SAMPLER)

    def tell(self, trial: Trial) -> None:
        """The search tells the tuner itself."""
