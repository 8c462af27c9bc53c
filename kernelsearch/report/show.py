"""A stored kernel as a file that `verify`, `measure` and `export` take: its best config is its CONFIG."""

from __future__ import annotations

from kernelsearch.core import words
from kernelsearch.core.types import Trial
from kernelsearch.record import lineage
from kernelsearch.record.rows import candidate_digest
from kernelsearch.record.store import Store
from kernelsearch.report import confirmed


def kernel_file(store: Store, which: str = "best", task: str | None = None, run: int | None = None) -> str:
    """The text of a kernel file; which is a digest, the beginning of one, or `best` (see `record.lineage.best`).

    Comments at its head say where it came from and how its time was obtained. Raises StoreError.
    """
    digest = lineage.best(store, task, run=run) if which == "best" else store.digest(which)
    run = lineage.run_of(store, digest, run)
    trials = [t for t in store.trials(run) if t.kernel == digest]
    best = min((t for t in trials if _counts(t)), key=lambda t: (t.score, t.number), default=None)
    chosen = best or next((t for t in trials if t.accepted), None)
    kernel = store.structures(run)[digest].kernel
    if chosen:
        kernel = kernel.changed(config=dict(chosen.config))
    head = [f"# kernel {digest}, of run {run} ({store.run(run).name})", f"# {_evidence(chosen, trials)}"]
    if chosen:
        head += _confirmed(store, candidate_digest(store.run(run).task, digest, chosen.config))
    return "\n".join(head) + "\n" + kernel.render()


def _confirmed(store: Store, candidate: str) -> list[str]:
    """A line with the newest confirmed numbers of each device, if there are any."""
    found = [f for f in store.confirmations() if f["candidate"] == candidate and f["vs_fastest"]]
    return [f"# {f['status']} on {f['device']}: {confirmed.headline(f)}" for f in found]


def _counts(trial: Trial) -> bool:
    return trial.score is not None and not trial.outcome.measurement.abandoned


def _evidence(chosen: Trial | None, trials: list[Trial]) -> str:
    if chosen is None:
        verdict = trials[0].outcome.verdict
        return f"never accepted: {verdict.word.value}, {' '.join(verdict.reason.split())}"
    measurement = chosen.outcome.measurement
    return f"{words.speedup(chosen.score, measurement.evidence.value)} on {measurement.device}, trial {chosen.number}"
