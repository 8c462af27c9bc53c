"""Map elites: the best kernel of each niche is kept, and every niche may have children.

MAP-Elites (Mouret and Clune, 2015): an archive whose cells are the behaviour of a kernel on the machine, not its text:
distinct bytes, passes over them, tile class, parallelism, what limits occupancy (`niche` in a
measurement's detail). A cell holds its best candidate. Parents are drawn from the cells, more often from good ones,
so that a slower kernel of another kind is still built upon.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kernelsearch.core.types import SAMPLER, Proposal, ProposalKind, Trial
from kernelsearch.search.contract import Start

Cell = tuple[Any, ...]


@dataclass(frozen=True)
class Params:
    """rewrite: the chance of a new structure. greed: how strongly good cells are preferred, as a power of 1 / score.

    hopeless: cells that are this many times slower than the best have no children. neighbour: the chance that tuning
    steps from the kernel's best config; else sampler chooses: TPE, which did better here than the tuner's own
    (studies/strategies/findings.md). most: a kernel with more trials than that gets the tuner's own sampler, whose asks
    cost the same at any length of a run. fresh: the chance that tuning goes near the cell's own config through an
    explicit config, which keeps unlike configs of one kernel apart.
    """

    rewrite: float = 0.5
    greed: float = 3.0
    hopeless: float = 3.0
    neighbour: float = 0.6
    sampler: str = "tpe"
    most: int = 64
    fresh: float = 0.3


@dataclass
class Strategy:
    params: Params
    start: Start
    cells: dict[Cell, Trial] = field(default_factory=dict)
    tried: Counter[str] = field(default_factory=Counter)

    def ask(self, number: int) -> Proposal | None:
        rng = self.start.rng(number)
        if not self.cells:
            return Proposal(ProposalKind.RETUNE, (self.start.kernel,))
        best = min(e.score for e in self.cells.values())
        living = [e for e in self.cells.values() if e.score <= self.params.hopeless * best]
        chosen = rng.choices(living, [math.pow(best / e.score, self.params.greed) for e in living])[0]
        if rng.random() < self.params.rewrite:
            return Proposal(ProposalKind.REWRITE, (chosen.kernel,))
        if rng.random() < self.params.fresh:  # the search takes the nearest config that is untried
            return Proposal(ProposalKind.RETUNE, (chosen.kernel,), config=chosen.config)
        sampler = self.params.sampler if self.tried[chosen.kernel] <= self.params.most else SAMPLER
        near = rng.random() < self.params.neighbour
        return Proposal(ProposalKind.RETUNE, (chosen.kernel,), sampler="neighbour" if near else sampler)

    def tell(self, trial: Trial) -> None:
        self.tried[trial.kernel] += 1
        if trial.score is None or trial.outcome.measurement.abandoned:
            return
        cell = _cell(trial)
        self.cells[cell] = min(self.cells.get(cell, trial), trial, key=lambda t: t.score)


def _cell(trial: Trial) -> Cell:
    """The niche as a key; without a niche each kernel has a cell of its own."""
    times = trial.outcome.measurement.times
    niche = times[0].detail.get("niche") if times else None
    return tuple(sorted(niche.items())) if niche else (trial.kernel,)
