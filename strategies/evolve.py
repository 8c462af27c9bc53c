"""Evolve: a population of accepted kernels; most asks rewrite a good one or tune a promising one.

Steady-state evolution with tournament selection (Goldberg and Deb, 1991), and three things that kernels
need: a new structure inherits its parent's best config and gets a few tuning trials before it is judged,
since a rewrite at the wrong tile size looks slower than it is; the edits' odds begin with what hints about
the best kernels suggest and follow the gains of this run (bandit weights: the smoothed mean of what each
edit gained); and a share of asks polishes the best kernel's numbers. No crossover.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kernelsearch.measure.changes import suggested_edits
from kernelsearch.protocols import Start
from kernelsearch.types import Proposal, ProposalKind, Trial


@dataclass(frozen=True)
class Params:
    """How a budget is divided; the defaults were chosen on the simulated landscape, 200 trials, window 8.

    rewrite: the chance of a new structure. young: of tuning one that is not yet judged, where there is one;
    what remains tunes the population. tuning: trials before a structure is judged. hopeless: a structure
    whose best score is this many times the best one's is judged at once. population: how many kernels may
    have children. tournament: how many of them are drawn for one place. neighbour: the chance that tuning
    steps from the kernel's best config instead of asking TPE. sharpness: how strongly gains move the odds.
    hinted: the log gain that is expected of an edit that hints suggest, before it has been tried; it counts as
    one trial.
    """

    rewrite: float = 0.5
    young: float = 0.35
    tuning: int = 4
    hopeless: float = 1.5
    population: int = 8
    tournament: int = 4
    neighbour: float = 0.6
    sharpness: float = 6.0
    hinted: float = 0.15


@dataclass
class Member:
    """A kernel of this run: where it came from and how it has done so far.

    inherited is its parent's score then; hinted are the edits that hints suggest for its best config.
    """

    edit: str | None
    inherited: float
    trials: int = 0
    best: float = math.inf
    hinted: tuple[str, ...] = ()


@dataclass
class Strategy:
    params: Params
    start: Start
    members: dict[str, Member] = field(default_factory=dict)

    def ask(self, number: int) -> Proposal | None:
        rng, params = self.start.rng(number), self.params
        ranked = self._ranked()
        if not ranked:
            return Proposal(ProposalKind.RETUNE, (self.start.kernel,))
        draw = rng.random()
        if draw < params.rewrite:
            return Proposal(ProposalKind.REWRITE, (self._winner(rng, ranked),))
        young = self._young(ranked)
        tune_young = young and draw < params.rewrite + params.young
        chosen = rng.choice(young) if tune_young else self._winner(rng, ranked)
        near = rng.random() < params.neighbour
        return Proposal(ProposalKind.RETUNE, (chosen,), sampler="neighbour" if near else "tpe")

    def tell(self, trial: Trial) -> None:
        member = self.members.get(trial.kernel)
        if member is None:
            parents = [self.members[p].best for p in trial.proposal.parents if p in self.members]
            member = self.members[trial.kernel] = Member(trial.edit, min(parents, default=1.0))
        member.trials += 1
        if trial.score is not None and trial.score < member.best:
            member.best, member.hinted = trial.score, suggested_edits(trial.outcome.hints)

    def weights(self) -> dict[str, float]:
        """Odds of the edits by name: exp(sharpness * mean log gain), smoothed by one trial that gave what was expected.

        Of an edit that hints about the leading kernels suggest `hinted` is expected, of others nothing. A rejected
        rewrite counts as a small loss; an edit that was neither tried nor suggested has odds of 1.
        """
        gains: dict[str, list[float]] = {}
        for member in self.members.values():
            if member.edit is not None:
                gain = math.log(member.inherited / member.best) if member.best < math.inf else -0.1
                gains.setdefault(member.edit, []).append(max(-0.3, min(0.3, gain)))
        expected = self._expected()
        return {
            e: math.exp(self.params.sharpness * (expected.get(e, 0.0) + sum(g := gains.get(e, []))) / (len(g) + 1))
            for e in sorted({*gains, *expected})
        }

    def _expected(self) -> dict[str, float]:
        """The prior: what the hints of the leading kernels (those that are drawn most as parents) suggest."""
        leading = self._ranked()[: max(1, self.params.population // self.params.tournament)]
        return {e: self.params.hinted for digest in leading for e in self.members[digest].hinted}

    def _ranked(self) -> list[str]:
        alive = [digest for digest, m in self.members.items() if m.best < math.inf]
        # Of equals the older one is the simpler one, and sorting keeps it first.
        return sorted(alive, key=lambda digest: self.members[digest].best)[: self.params.population]

    def _young(self, ranked: list[str]) -> list[str]:
        limit = self.params.hopeless * self.members[ranked[0]].best
        return [digest for digest, m in self.members.items() if m.trials < self.params.tuning and m.best <= limit]

    def _winner(self, rng, ranked: list[str]) -> str:
        return ranked[min(rng.randrange(len(ranked)) for _ in range(self.params.tournament))]
