"""A run for one kernel that a person or an agent wrote: the seed, its ancestors, the kernel, its configs.

The run is like any other, so that the kernel stands in the leaderboard, and in its family tree with its parent.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelsearch.core.types import Config, Proposal, ProposalKind, TaskFacts, Trial
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import Space
from kernelsearch.propose.contract import Proposer, Request, Rewrite
from kernelsearch.record import family_tree
from kernelsearch.record.store import Store
from kernelsearch.search.contract import Strategy

STRATEGY = "try"


@dataclass
class OneKernel(Strategy, Proposer):
    """Asks for the line of descent, the kernel as its last, then for configs of the kernel, and writes each of them.

    A kernel that has the seed's structure is the seed with another config. It asks for no more configs once the kernel
    is rejected or has none left.
    """

    seed: str
    line: tuple[Rewrite, ...]
    config: Config = field(default_factory=dict)
    ended: bool = False
    known: bool = False
    ordered = False

    @property
    def kernel(self) -> str:
        return self.line[-1].kernel.digest if self.line else self.seed

    def ask(self, number: int) -> Proposal | None:
        parents = (self.seed, *(r.kernel.digest for r in self.line))
        if number <= len(self.line):
            return Proposal(ProposalKind.REWRITE, (parents[number - 1],))
        if number == 1:
            return Proposal(ProposalKind.RETUNE, (self.seed,), config=self.config or None)
        return Proposal(ProposalKind.RETUNE, (self.kernel,)) if self.known and not self.ended else None

    def tell(self, trial: Trial, kernel: Kernel | None = None, parent: str | None = None) -> None:
        """Receives a finished trial, as a strategy and as a proposer."""
        self.known |= trial.kernel == self.kernel
        first = trial.proposal.kind is not ProposalKind.RETUNE
        self.ended |= (trial.kernel == self.kernel and first and not trial.accepted) or (
            not first and trial.kernel != self.kernel
        )

    def propose(self, request: Request, rng: random.Random) -> Rewrite | None:
        return self.line[request.number - 1] if request.number <= len(self.line) else None

    def count_trials(self, tune: int) -> int:
        """The trials of a run with so many more for the kernel's space, the seed's own among them."""
        space = self.line[-1].kernel.space if self.line else {}
        more = min(tune, Space(space).size - 1) if space else tune
        return 1 + max(1, len(self.line)) + more


def recall_line(store: Store, task: TaskFacts, digest: str) -> tuple[Rewrite, ...]:
    """The line of descent of a stored kernel, from behind the seed, each with its best config. Raises StoreError."""
    run = family_tree.run_of(store, digest)
    steps = family_tree.ancestors(family_tree.load_tree(store, run), digest)[1:]
    best: dict[str, Trial] = {}
    for trial in store.load_trials(run):
        known = best.get(trial.kernel)
        if known is None or (trial.score is not None and (known.score is None or trial.score < known.score)):
            best[trial.kernel] = trial
    structures = store.load_structures(run)
    return tuple(
        Rewrite(structures[s.kernel].kernel.with_changes(config=dict(best[s.kernel].config)), s.edit or "", s.rationale)
        for s in steps
    )


def cut_line(line: Sequence[Rewrite], kernel: Kernel) -> tuple[Rewrite, ...]:
    """The line up to a kernel of this structure, which takes the place of that one; the whole line if it has none."""
    return tuple(line[: next((i for i, r in enumerate(line) if r.kernel.digest == kernel.digest), len(line))])
