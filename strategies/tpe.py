"""TPE: Optuna's sampler alone, over the seed's space; no structure is ever changed.

Tree-structured Parzen estimator (Bergstra et al., 2011) in Optuna's multivariate form, after six random configs. The
tuner that most projects would take; `bayes` is the same with this project's own.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelsearch.core.types import Proposal, ProposalKind, Trial
from kernelsearch.search.contract import Start


@dataclass(frozen=True)
class Params:
    """neighbour: the chance that an ask steps from the best config instead of asking TPE."""

    neighbour: float = 0.0


class Strategy:
    rewrites = ordered = False

    def __init__(self, params: Params, start: Start) -> None:
        self.params, self.start = params, start

    def ask(self, number: int) -> Proposal | None:
        near = self.start.rng(number).random() < self.params.neighbour
        return Proposal(ProposalKind.RETUNE, (self.start.kernel,), sampler="neighbour" if near else "tpe")

    def tell(self, trial: Trial) -> None:
        """The search tells the tuner itself."""
