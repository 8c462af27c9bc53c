"""A run's row and stored trials: of a new run, or of one that resumes by telling its trials again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kernelsearch.core.errors import StoreError
from kernelsearch.core.types import Config, Proposal, TaskFacts, Trial, config_key
from kernelsearch.record.rows import Run, RunFacts
from kernelsearch.record.store import Store
from kernelsearch.record.stored_trials import StoredTrials


class BegunRun(StoredTrials):
    """A run's row, and the trials that it begins with; structures are by the number of their first trial.

    retold: this process made the trials, and replays them because a `full` verdict rejected one.
    """

    def __init__(self, store: Store, run: Run, retold: bool = False) -> None:
        super().__init__(store, run.id, store.count_trials(run.id))
        self.run, self.structures = run, {s.number: s for s in store.load_structures(run.id).values()}
        self._retold = len(self) if retold else 0

    def proposal(self, number: int, ask: Callable[[int], Proposal | None]) -> Proposal | None:
        """The strategy's proposal, or the stored one of this process, since not every strategy repeats itself."""
        asked = ask(number)
        return self[number].proposal if number < self._retold else asked

    def trial(self, number: int, proposal: Proposal, kernel: str, config: Config) -> Trial:
        """The stored trial of this candidate. Raises StoreError when another candidate is stored there."""
        stored = self[number]
        wanted = (number, kernel, config_key(config), proposal)
        if (stored.number, stored.kernel, config_key(stored.config), stored.proposal) != wanted:
            raise StoreError(
                f"run {self.run.id} cannot be resumed: its trial {number} was kernel {stored.kernel} with "
                f"{config_key(stored.config)}, but this search asks for kernel {kernel} with "
                f"{config_key(config)}; the strategy or the package has changed, or the strategy draws its own random "
                "numbers, not those of start.rng(number): start a new run"
            )
        return stored


def begin_run(store: Store, task: TaskFacts, facts: RunFacts, resume: Run | None, retold: bool = False) -> BegunRun:
    """Begins or resumes a run; writes a new one's row. Raises StoreError when it cannot go on with these facts.

    Raises RunBusy when another process writes it.
    """
    if resume is None:
        return BegunRun(store, store.add_run(task, facts))
    store.claim_run(resume.id)
    if resume.task != task.digest:
        raise StoreError(f"run {resume.id} cannot be resumed: the task file has changed since; start a new run")
    for own, stored in ((vars(facts), vars(resume.facts)), (facts.settings, resume.facts.settings)):
        for name in (n for n in {**stored, **own} if n not in ("trials", "versions", "settings")):
            ours, theirs = (one.get(name, "its default") for one in (own, stored))
            if ours != theirs:
                raise StoreError(
                    f"run {resume.id} cannot be resumed with {name} {ours}: it has {theirs}; "
                    "give that, or start a new run"
                )
    ours, theirs = facts.versions.get("triton"), resume.facts.versions.get("triton")
    if ours != theirs:  # it decides every binary: one run must not mix times of two versions
        raise StoreError(
            f"run {resume.id} cannot be resumed with triton {ours}: its times are of triton {theirs}; "
            "install that version, or start a new run"
        )
    if facts.trials != resume.facts.trials:
        resume = store.set_budget(resume, facts.trials)
    return BegunRun(store, replace(resume, facts=facts), retold)
