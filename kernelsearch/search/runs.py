"""A run's row and what it holds already: a new run, or a stored one that goes on by telling its trials again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kernelsearch.core.errors import StoreError
from kernelsearch.core.types import Config, Proposal, TaskFacts, Trial, config_key
from kernelsearch.record.pages import StoredTrials
from kernelsearch.record.rows import Run, RunFacts, Structure
from kernelsearch.record.store import Store


@dataclass(frozen=True)
class Begun:
    """trials are those stored before this process; structures those that they first had, by trial number."""

    run: Run
    trials: Sequence[Trial] = ()
    structures: dict[int, Structure] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.trials)

    def proposal(self, number: int) -> Proposal | None:
        """What was proposed under a smaller budget stands: what a strategy asks may depend on its budget."""
        return self.trials[number].proposal if number < self.run.extended else None

    def trial(self, number: int, proposal: Proposal, kernel: str, config: Config) -> Trial:
        """The stored trial of this candidate. Raises StoreError when another candidate is stored there."""
        stored = self.trials[number]
        same = (
            stored.number == number
            and stored.kernel == kernel
            and config_key(stored.config) == config_key(config)
            and stored.proposal == proposal
        )
        if not same:
            raise StoreError(
                f"run {self.run.id} cannot be resumed: its trial {number} was kernel {stored.kernel} with "
                f"{config_key(stored.config)}, but this search asks for kernel {kernel} with "
                f"{config_key(config)}; the strategy or the package has changed, start a new run"
            )
        return stored


def begun(store: Store, task: TaskFacts, facts: RunFacts, resume: Run | None) -> Begun:
    """The run's row, written now if it is a new one. Raises StoreError when it cannot go on with these facts."""
    if resume is None:
        return Begun(store.add_run(task, facts))
    if resume.task != task.digest:
        raise StoreError(f"run {resume.id} cannot be resumed: the task file has changed since; start a new run")
    for name in _differences(facts, resume):
        raise StoreError(
            f"run {resume.id} cannot be resumed with {name} {getattr(facts, name)!r}: it has "
            f"{getattr(resume.facts, name)!r}; give that, or start a new run"
        )
    if facts.trials != resume.facts.trials:
        resume = store.set_budget(resume, facts.trials)
    structures = {s.number: s for s in store.structures(resume.id).values()}
    return Begun(replace(resume, facts=facts), StoredTrials(store, resume.id, store.count(resume.id)), structures)


def _differences(facts: RunFacts, run: Run) -> list[str]:
    """Names of facts that a resume needs equal and that are not; the budget and the versions may differ."""
    names = [n for n in facts.__dataclass_fields__ if n not in ("trials", "versions")]
    return [n for n in names if getattr(facts, n) != getattr(run.facts, n)]
