"""The kernels of a run as a family tree: ancestors, children, and what each step gained; and the best kernel."""

from __future__ import annotations

import json
from dataclasses import dataclass

from kernelsearch.core.errors import StoreError
from kernelsearch.core.types import is_gain
from kernelsearch.record.confirmation_rows import count_gain
from kernelsearch.record.rows import from_row
from kernelsearch.record.store import OF_TASK, Store


@dataclass(frozen=True)
class LineageStep:
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


def run_of(store: Store, digest: str, run: int | None = None, task: str | None = None) -> int:
    """The run whose tree shows a kernel: the given one, else the one (of a task's) where it did best.

    Raises StoreError.
    """
    matches = store.query(
        """SELECT run FROM lineage JOIN run ON run.id = lineage.run
           WHERE kernel = :kernel AND (:run IS NULL OR run = :run) AND (:task IS NULL OR run.task = :task)
           ORDER BY score IS NULL, score, run DESC""",
        {"kernel": digest, "run": run, "task": task},
    )
    if not matches and task is not None:
        raise StoreError(f"kernel {digest[:8]} was tried for another task, not for this one: try it here first")
    if not matches:
        raise StoreError(f"kernel {digest} belongs to no run" if run is None else f"run {run} has no kernel {digest}")
    return matches[0]["run"]


def load_tree(store: Store, run: int) -> dict[str, LineageStep]:
    """All kernels of a run by digest, parents before children."""
    steps: dict[str, LineageStep] = {}
    for row in store.query(
        """SELECT lineage.*, kernel.source FROM lineage JOIN kernel ON kernel.digest = lineage.kernel
           WHERE run = ? ORDER BY number""",
        [run],
    ):
        depth = steps[row["parent"]].depth + 1 if row["parent"] in steps else 0
        counts = {"trials": row["trials"] or 0, "accepted": row["accepted"] or 0}
        steps[row["kernel"]] = from_row(LineageStep, row, depth=depth, **counts)
    return steps


def ancestors(steps: dict[str, LineageStep], digest: str) -> list[LineageStep]:
    """From the run's seed to the kernel itself."""
    chain = []
    step = steps.get(digest)
    while step is not None:
        chain.append(step)
        step = steps.get(step.parent or "")
    return chain[::-1]


def children(steps: dict[str, LineageStep], digest: str) -> list[LineageStep]:
    """Kernels made directly from this one, best first, rejected ones last."""
    direct = [s for s in steps.values() if s.parent == digest]
    return sorted(direct, key=lambda s: (s.score is None, s.score or 0.0, s.number))


def find_best_kernel(store: Store, task: str | None = None, device: str | None = None, run: int | None = None) -> str:
    """The digest of the fastest accepted kernel of a run, of a task (its name or digest), of a device, or of all.

    A confirmed kernel precedes all that were only measured or estimated. The best is the seed where nothing gains over
    it (`is_gain`). Scores of different tasks cannot be compared: without a task or run, the newest run's task is meant.
    Raises StoreError if no kernel was accepted.
    """
    if task is None and run is None:
        newest = store.load_runs()
        task = newest[0].task if newest else None
    scope = {"task": task, "device": device, "run": run}
    confirmed = store.query(
        f"""SELECT candidate.kernel, task.digest AS task, c.detail
           FROM confirmation AS c JOIN candidate ON candidate.digest = c.candidate
           JOIN task ON task.digest = candidate.task
           WHERE c.status = 'confirmed' AND coalesce(json_array_length(c.detail, '$.champion_at'), 0) = 0
             AND {OF_TASK} AND (:device IS NULL OR c.device = :device) AND EXISTS (
                 SELECT 1 FROM trial WHERE trial.kernel = candidate.kernel AND trial.score IS NOT NULL
                     AND (:run IS NULL OR trial.run = :run))""",
        scope,
    )
    found = [{**row, "gain": count_gain(json.loads(row["detail"]))} for row in confirmed]
    matches = sorted(found, key=lambda row: -row["gain"]) or store.query(
        f"""SELECT trial.kernel, run.task, 1 / trial.score AS gain
           FROM trial JOIN run ON run.id = trial.run JOIN task ON task.digest = run.task
           WHERE trial.score IS NOT NULL AND NOT trial.abandoned AND {OF_TASK}
             AND (:device IS NULL OR trial.device = :device) AND (:run IS NULL OR trial.run = :run)
           ORDER BY trial.evidence = 'estimated', trial.score, trial.run, trial.number LIMIT 1""",
        scope,
    )
    if not matches:
        if run is None and task is not None:
            store.refuse_unknown_task(task)
        of = store.query("SELECT name FROM task WHERE :task IN (name, digest)", {"task": task})
        others = store.query(
            """SELECT DISTINCT task.name FROM trial JOIN run ON run.id = trial.run JOIN task ON task.digest = run.task
               WHERE trial.score IS NOT NULL AND NOT coalesce(:task IN (task.name, task.digest), 0)""",
            {"task": task},
        )
        whose = f" of {of[0]['name']}" if of else ""
        more = f"; --task names another: {', '.join(row['name'] for row in others)}" if others and run is None else ""
        raise StoreError(f"{store.path} has no accepted kernel{whose} yet{more}")
    best = matches[0]
    seeds = store.query(
        """SELECT kernel FROM trial JOIN run ON run.id = trial.run
           WHERE run.task = ? AND kind = 'seed' ORDER BY run.id = ? DESC, run.id DESC LIMIT 1""",
        [best["task"], run],
    )
    return best["kernel"] if not seeds or is_gain(best["gain"] or 0.0) else seeds[0]["kernel"]
