"""Islands: several small populations that evolve apart, with a rare exchange of their best.

The island model (Tanese, 1989; FunSearch, Romera-Paredes et al., 2024, resets its weakest islands from the others'
best). Ask n belongs to island n modulo their number; an island sees only the results of its own asks, and what came by
migration: every so many trials each island takes in the best kernel of the one before it, and the weakest starts
anew from the best of all. So one early lucky kernel does not drive out every other line.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

from kernelsearch.core.types import SAMPLER, Proposal, ProposalKind, Trial
from kernelsearch.search.contract import Start


@dataclass(frozen=True)
class Params:
    """islands: how many. migrate: told trials between two exchanges. population: kernels that an island keeps.

    tournament: how many of them are drawn for one place. rewrite: the chance of a new structure. neighbour: the chance
    that tuning steps from the kernel's best config; else sampler chooses: TPE, which did better here than the tuner's
    own (studies/strategies/findings.md). most: a kernel with more trials than that gets the tuner's own sampler, whose
    asks cost the same at any length of a run.
    """

    islands: int = 4
    migrate: int = 40
    population: int = 6
    tournament: int = 3
    rewrite: float = 0.5
    neighbour: float = 0.6
    sampler: str = "tpe"
    most: int = 64


@dataclass
class Strategy:
    params: Params
    start: Start
    best: dict[str, float] = field(default_factory=dict)
    tried: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.islands: list[dict[str, None]] = [{} for _ in range(self.params.islands)]

    def ask(self, number: int) -> Proposal | None:
        rng = self.start.rng(number)
        ranked = sorted(self.islands[number % self.params.islands], key=self.best.__getitem__)
        if not ranked:
            return Proposal(ProposalKind.RETUNE, (self.start.kernel,))
        parent = ranked[min(rng.randrange(len(ranked)) for _ in range(self.params.tournament))]
        if rng.random() < self.params.rewrite:
            return Proposal(ProposalKind.REWRITE, (parent,))
        sampler = self.params.sampler if self.tried[parent] <= self.params.most else SAMPLER
        near = rng.random() < self.params.neighbour
        return Proposal(ProposalKind.RETUNE, (parent,), sampler="neighbour" if near else sampler)

    def tell(self, trial: Trial) -> None:
        self.tried[trial.kernel] += 1
        if trial.score is not None:
            self.best[trial.kernel] = min(trial.score, self.best.get(trial.kernel, trial.score))
            everywhere = self.islands if trial.number == 0 else [self.islands[trial.number % self.params.islands]]
            for island in everywhere:
                island.setdefault(trial.kernel)
                self._trim(island)
        if self.tried.total() % self.params.migrate == 0:
            self._migrate()

    def _migrate(self) -> None:
        """Each island takes in the best of the one before it; the weakest starts anew from the best of all."""
        firsts = [min(island, key=self.best.__getitem__, default=None) for island in self.islands]
        for number, island in enumerate(self.islands):
            if firsts[number - 1] is not None:
                island.setdefault(firsts[number - 1])
                self._trim(island)
        known = [f for f in firsts if f is not None]
        if known:
            weakest = max(range(len(firsts)), key=lambda i: self.best.get(firsts[i], math.inf))
            self.islands[weakest] = {min(known, key=self.best.__getitem__): None}

    def _trim(self, island: dict[str, None]) -> None:
        """Keeps the island's best kernels, of equals the older ones."""
        for digest in sorted(island, key=self.best.__getitem__)[self.params.population :]:
            del island[digest]
