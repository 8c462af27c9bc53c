"""Where a kernel came from, read from the record: its ancestors, its children, what each step gained."""

from __future__ import annotations

from dataclasses import dataclass

from kernelsearch.core.errors import StoreError
from kernelsearch.record.store import Store


@dataclass(frozen=True)
class Step:
    """One kernel of a run's tree.

    score is its best time over the seed's; gain is its parent's best score over its own (above 1 is
    faster), None where either was never accepted; depth counts the rewrites since the run's seed.
    """

    kernel: str
    name: str
    run: int
    number: int
    parent: str | None
    edit: str | None
    rationale: str
    proposer: str
    trials: int
    accepted: int
    score: float | None
    gain: float | None
    depth: int
    source: str


def run_of(store: Store, digest: str, run: int | None = None) -> int:
    """The run to tell a kernel's story from: the given one, else the one where it did best, newest first."""
    found = store.query(
        """SELECT run FROM lineage WHERE kernel = :kernel AND (:run IS NULL OR run = :run)
           ORDER BY score IS NULL, score, run DESC""",
        {"kernel": digest, "run": run},
    )
    if not found:
        raise StoreError(f"kernel {digest} belongs to no run" if run is None else f"run {run} has no kernel {digest}")
    return found[0]["run"]


def tree(store: Store, run: int) -> dict[str, Step]:
    """All kernels of a run by digest, parents before children."""
    rows = store.query(
        """SELECT lineage.*, kernel.source FROM lineage JOIN kernel ON kernel.digest = lineage.kernel
           WHERE run = ? ORDER BY number""",
        [run],
    )
    steps: dict[str, Step] = {}
    for row in rows:
        above = steps.get(row["parent"])
        steps[row["kernel"]] = Step(
            kernel=row["kernel"],
            name=row["name"],
            run=run,
            number=row["number"],
            parent=row["parent"],
            edit=row["edit"],
            rationale=row["rationale"],
            proposer=row["proposer"],
            trials=row["trials"] or 0,
            accepted=row["accepted"] or 0,
            score=row["score"],
            gain=row["gain"],
            depth=above.depth + 1 if above else 0,
            source=row["source"],
        )
    return steps


def ancestors(steps: dict[str, Step], digest: str) -> list[Step]:
    """From the run's seed to the kernel itself."""
    chain = []
    at: str | None = digest
    while at is not None and at in steps:
        chain.append(steps[at])
        at = steps[at].parent
    return chain[::-1]


def children(steps: dict[str, Step], digest: str) -> list[Step]:
    """Kernels made directly from this one, best first, rejected ones last."""
    made = [s for s in steps.values() if s.parent == digest]
    return sorted(made, key=lambda s: (s.score is None, s.score or 0.0, s.number))


def best(store: Store, task: str | None = None, device: str | None = None, run: int | None = None) -> str:
    """The digest of the fastest accepted kernel: of a run, of a task (its name or digest), of a device, or of all.

    A confirmed kernel goes before all that were only measured or estimated. Scores of different tasks cannot be compared: without a task or run, the newest run's task is meant.
    """
    if task is None and run is None:
        newest = store.runs()
        task = newest[0].task if newest else None
    asked = {"task": task, "device": device, "run": run}
    found = store.query(
        """SELECT candidate.kernel FROM confirmation AS c JOIN candidate ON candidate.digest = c.candidate
           JOIN task ON task.digest = candidate.task
           WHERE c.status = 'confirmed' AND coalesce(json_array_length(c.detail, '$.champion_at'), 0) = 0 AND (:task IS NULL OR :task IN (task.name, task.digest))
             AND (:device IS NULL OR c.device = :device) AND EXISTS (
                 SELECT 1 FROM trial WHERE trial.kernel = candidate.kernel AND trial.score IS NOT NULL
                     AND (:run IS NULL OR trial.run = :run))
           ORDER BY c.vs_seed DESC LIMIT 1""",
        asked,
    )
    found = found or store.query(
        """SELECT trial.kernel FROM trial JOIN run ON run.id = trial.run JOIN task ON task.digest = run.task
           WHERE trial.score IS NOT NULL AND NOT trial.abandoned AND (:task IS NULL OR :task IN (task.name, task.digest))
             AND (:device IS NULL OR trial.device = :device) AND (:run IS NULL OR trial.run = :run)
           ORDER BY trial.evidence = 'estimated', trial.score, trial.run, trial.number LIMIT 1""",
        asked,
    )
    if not found:
        others = store.instead_of(task) if run is None and task is not None else None
        if others:
            raise StoreError(f"{store.path} has no task {task!r}: its tasks are {', '.join(others)}")
        raise StoreError(f"{store.path} has no accepted kernel yet")
    return found[0]["kernel"]
