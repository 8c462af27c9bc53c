"""The history of a run for its proposers: every kernel with its parent, its best time, and why it was refused.

It is a function of the finished trials alone: a resumed run, which is told them again, has the same history.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kernelsearch.core.types import Config, Trial, Verdict, config_key, is_whole_kernel
from kernelsearch.kernel.source import Kernel

TUNED = 8
"""Trials after which a kernel that was written whole counts as tuned."""
PATIENCE = 24
"""Asks of the search after which a kernel counts as tuned in any case."""


@dataclass
class Entry:
    """One kernel: its parent, who made it and why, and its results so far. Scores are times over the seed's.

    begun is its first trial, first its score then, inherited the parent's at the same config; where the parent has none
    there, its best one at that time.
    scores are those by config; tried and seconds are its trials and what they took.
    """

    kernel: Kernel
    parent: str | None
    edit: str
    action: str
    number: int
    best: Trial | None = None
    refused: Verdict | None = None
    begun: Trial | None = None
    first: float | None = None
    inherited: float | None = None
    scores: dict[str, float] = field(default_factory=dict)
    tried: int = 0
    seconds: float = 0.0

    @property
    def score(self) -> float:
        score = self.best.score if self.best else None
        return math.inf if score is None else score

    def share(self, config: Config) -> Config:
        """The part of a child's config that this kernel has, too."""
        return {name: config[name] for name in (self.best.config if self.best else ()) if name in config}

    @property
    def configs(self) -> int:
        """How many configs its own space has; 1 where it has none."""
        return math.prod(len(values) for values in self.kernel.space.values())

    def is_tuned(self, number: int) -> bool:
        """Whether its times can be told at this ask: it is right, and tuned or given up by the tuner."""
        tuned = self.tried >= min(TUNED, self.configs) or number - self.number >= PATIENCE
        return self.best is not None and tuned


@dataclass
class History:
    """Entries by digest, in the order of their first trials."""

    entries: dict[str, Entry] = field(default_factory=dict)

    def tell(self, trial: Trial, kernel: Kernel, parent: str | None) -> Entry:
        entry = self.entries.get(trial.kernel)
        if entry is None:
            entry = Entry(kernel, parent, trial.edit or "seed", trial.rationale, trial.number, begun=trial)
            self.entries[trial.kernel] = entry
            above = self.get(parent)
            entry.first = trial.score
            if above is not None and above.best is not None:
                entry.inherited = above.scores.get(config_key(above.share(trial.config)), above.score)
        entry.tried += 1
        entry.seconds += trial.outcome.seconds
        if not trial.accepted:
            entry.refused = trial.outcome.verdict
        elif (measured := trial.outcome.measurement) and trial.score is not None and not measured.abandoned:
            entry.scores.setdefault(config_key(trial.config), trial.score)
            if trial.score < entry.score:
                entry.best = trial
        return entry

    def get(self, digest: str | None) -> Entry | None:
        return self.entries.get(digest) if digest else None

    def children(self, digest: str) -> list[Entry]:
        return [e for e in self.entries.values() if e.parent == digest]

    def gain(self, entry: Entry) -> float | None:
        """The log of the parent's best score over the kernel's own, each after its own tuning; None while unknown."""
        above = self.get(entry.parent)
        if above is None or entry.best is None or above.best is None:
            return None
        return math.log(above.score / entry.score)

    def earned_gain(self, entry: Entry, usual: float) -> float:
        """The log gain that is the change's own and not the tuner's; 0 for a refused kernel.

        At its first trial a kernel runs with its parent's best config. The gain of its own tuning after that counts
        only beyond the usual one (`usual_tuning`): any kernel, a useless one too, gets better by being tuned. A whole
        kernel begins with a config of its own: it is compared at the parent's best config that both have had. Where
        there is none, for want of the same names, it is compared after its tuning with its parent after the usual one.
        """
        above = self.get(entry.parent)
        if entry.best is None or above is None or above.best is None:
            return 0.0
        first, inherited = entry.first, entry.inherited
        if is_whole_kernel(entry.edit):
            common = entry.scores.keys() & above.scores.keys()
            if not common:
                untuned = usual - math.log(above.first / above.score) if above.first else 0.0
                return math.log(above.score / entry.score) - max(0.0, untuned)
            config = min(sorted(common), key=above.scores.__getitem__)
            first, inherited = entry.scores[config], above.scores[config]
        if first is None or inherited is None:
            return 0.0
        return math.log(inherited / first) + max(0.0, math.log(first / entry.score) - usual)

    def count_judged(self, entry: Entry) -> int:
        """The trials by which a kernel is judged: of a whole one those up to a config that its parent had, too."""
        if not is_whole_kernel(entry.edit):
            return 1
        above = self.get(entry.parent)
        common = (n for n, config in enumerate(entry.scores, 1) if above and config in above.scores)
        return min(next(common, TUNED), TUNED, entry.tried)

    def usual_tuning(self) -> float:
        """The mean gain of tuning after a kernel's first trial, as a log."""
        tuned = [math.log(e.first / e.score) for e in self.entries.values() if e.first is not None and e.best]
        return math.fsum(tuned) / len(tuned) if tuned else 0.0
