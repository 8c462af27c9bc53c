"""Kernels that a run begins with: of a person, an agent or another run, each tried before anything else and tuned.

They are candidates like any other, so they stand in the leaderboard, and in the family tree with their parents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelsearch.core.formats import shorten_reason
from kernelsearch.core.types import WHOLE, Proposal, ProposalKind, TaskFacts, Trial
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import Space
from kernelsearch.propose.contract import Rewrite
from kernelsearch.propose.grammar import AnswerRejection, WholeKernel
from kernelsearch.record import family_tree
from kernelsearch.record.store import Store
from kernelsearch.search.contract import Strategy
from kernelsearch.verify import gate

TUNED = 8
"""Trials that each kernel of a population has, if they are no more than half of the budget."""
TRY = "try"
"""The record's word for a run of one kernel that a person or an agent wrote."""
SETTING = "starts"
"""In a run's settings: the files of its population, each as (name, text)."""


@dataclass
class Population(Strategy):
    """Tunes these kernels in turn, each once its first config is accepted, then leaves the asks to another strategy.

    kernels are digests; each: the trials of one, its first included. Without `then` the run ends.
    """

    kernels: tuple[str, ...]
    each: int
    then: Strategy | None = None
    left: dict[str, int] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rewrites = self.then is not None and self.then.rewrites
        self.ordered = self.then is not None and self.then.ordered

    def ask(self, number: int) -> Proposal | None:
        digest = max(self.left, key=lambda kernel: self.left[kernel], default="")
        if self.left.get(digest, 0) <= 0:
            return self.then.ask(number) if self.then else None
        self.left[digest] -= 1
        self.asked.add(number)
        return Proposal(ProposalKind.RETUNE, (digest,))

    def tell(self, trial: Trial) -> None:
        """Receives a finished trial; a kernel for which another one was tuned has no configs left."""
        if trial.kernel in self.kernels and trial.kernel not in self.left:
            self.left[trial.kernel] = self.each - 1 if trial.accepted else 0
        elif trial.kernel in self.left and trial.number not in self.asked:
            self.left[trial.kernel] -= 1  # another strategy tuned it, or this one under a smaller budget
        if trial.proposal.kind is ProposalKind.RETUNE and trial.kernel not in trial.proposal.parents:
            self.left |= {kernel: 0 for kernel in trial.proposal.parents if kernel in self.left}
        if self.then:
            self.then.tell(trial)

    def expect(self, kernel: str, ratio: float) -> None:
        if self.then:
            self.then.expect(kernel, ratio)

    def weights(self) -> Mapping[str, float]:
        return self.then.weights() if self.then else {}


def join_population(starts: Sequence[Rewrite], trials: int, then: Strategy) -> Strategy:
    """The strategy of a run with this budget that begins with these kernels."""
    kernels = tuple(dict.fromkeys(s.kernel.digest for s in starts))
    return Population(kernels, min(TUNED, trials // (2 * len(kernels))), then) if kernels else then


def read_population(
    files: Sequence[tuple[str, str]], seed: Kernel, facts: TaskFacts, say: Callable[[str], None]
) -> tuple[Rewrite, ...]:
    """The kernels in these files, each a (name, text); says why a file is not a kernel file of this task."""
    starts = []
    for name, text in files:
        answer = WholeKernel(seed, facts.sites).read(text, gate.check)
        if isinstance(answer, AnswerRejection):
            say(f"{name} is refused at {answer.stage}: {shorten_reason(answer.reason)}; the search begins without it")
        else:
            starts.append(Rewrite(answer.kernel, f"{WHOLE}:{Path(name).name}", answer.why))
    return tuple(starts)


def recall_line(store: Store, digest: str, run: int) -> tuple[Rewrite, ...]:
    """A run's kernel and its ancestors without the seed, oldest first, each with its best config."""
    steps = family_tree.ancestors(family_tree.load_tree(store, run), digest)[1:]
    best: dict[str, Trial] = {}
    for trial in store.load_trials(run):
        known = best.get(trial.kernel)
        if known is None or (trial.score is not None and (known.score is None or trial.score < known.score)):
            best[trial.kernel] = trial
    structures = store.load_structures(run)
    return tuple(
        Rewrite(
            structures[s.kernel].kernel.with_changes(config=dict(best[s.kernel].config)),
            s.edit or "",
            s.rationale,
            s.parent,
        )
        for s in steps
    )


def extend_line(line: Sequence[Rewrite], kernel: Kernel, edit: str, why: str) -> tuple[Rewrite, ...]:
    """The line of descent with this kernel at its end; a kernel that was in it already keeps its author."""
    place = next((i for i, r in enumerate(line) if r.kernel.digest == kernel.digest), len(line))
    if place < len(line):
        edit, why = line[place].edit, why or line[place].rationale
    return (*line[:place], Rewrite(kernel, edit, why, line[place - 1].kernel.digest if place else None))


def count_trials(line: Sequence[Rewrite], tune: int) -> int:
    """How many trials a run of this line needs, the seed's included, with `tune` more for its last kernel's space."""
    space = line[-1].kernel.space
    return 1 + len(line) + (min(tune, Space(space).size - 1) if space else tune)
