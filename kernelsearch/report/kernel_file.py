"""A stored kernel as a file that `verify`, `measure` and `export` take: its best config is its CONFIG."""

from __future__ import annotations

from kernelsearch.core import formats
from kernelsearch.core.errors import StoreError
from kernelsearch.core.types import ProposalKind, Trial, is_gain
from kernelsearch.record import family_tree
from kernelsearch.record.rows import candidate_digest
from kernelsearch.record.store import IMPORTED, Store
from kernelsearch.report import findings
from kernelsearch.report.tables import describe_place, load_table, measurement_of
from kernelsearch.verify import gate


def render_kernel_file(store: Store, which: str = "best", task: str | None = None, run: int | None = None) -> str:
    """The text of a kernel file; which is a digest, its beginning, or `best` (`record.family_tree.find_best_kernel`).

    Comments at its head say where it came from and how its time was obtained. Raises StoreError.
    """
    digest = family_tree.find_best_kernel(store, task, run=run) if which == "best" else store.find_digest(which)
    run = family_tree.run_of(store, digest, run)
    trials = [t for t in store.load_trials(run) if t.kernel == digest]
    ranked = [t for t in trials if t.score is not None and not measurement_of(t).abandoned]
    best = min(ranked, key=lambda t: (t.score, t.number), default=None) or next((t for t in trials if t.accepted), None)
    first = trials[0]
    if best and best.score and best.kernel == first.kernel and first.number == 0 and not is_gain(1 / best.score):
        best = first  # the seed, as the package ships it
    kernel = store.load_structures(run)[digest].kernel
    if why := gate.check_stored(kernel.render(), digest, first.proposal.kind is ProposalKind.SEED):
        raise StoreError(f"{store.path}: {why}")
    stored_run = store.load_run(run)
    head = [f"kernel {digest}, of run {run} ({stored_run.name})", _evidence(best, first, stored_run.seed_configs)]
    if best:
        kernel = kernel.with_changes(config=dict(best.config))
        candidate = candidate_digest(stored_run.task, digest, best.config)
        head += filter(None, [describe_place(load_table(store, run), digest, dict(best.config))])
        head += [
            f"{finding['status']} on {finding['device']}{mark}: {findings.format_headline(finding)}"
            for finding in store.load_confirmations()
            if finding["candidate"] == candidate and finding["vs_fastest"]
            for mark in [IMPORTED if finding.get("imported") else ""]
        ]
    return "".join(f"# {' '.join(line.split())}\n" for line in head) + kernel.render()


def _evidence(best: Trial | None, first: Trial, configs: int) -> str:
    if best is None:
        verdict = first.outcome.verdict
        return f"never accepted: {verdict.word.value}, {formats.shorten_reason(verdict.reason)}"
    measurement = measurement_of(best)
    assert best.score is not None  # it was accepted
    speedup = formats.format_speedup(best.score, measurement.evidence.value, configs)
    return f"{speedup} on {measurement.device}, trial {best.number}"
