"""What a database has found, for programs: the leaderboard, and the best config of a task's own kernel."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from kernelsearch.api.results import Leaderboard, LeaderboardRow
from kernelsearch.core.errors import KernelsearchError, StoreError
from kernelsearch.core.types import LAUNCH_OPTIONS, Evidence
from kernelsearch.record import DEFAULT_DB
from kernelsearch.record.store import Store
from kernelsearch.report import leaderboard as board

if TYPE_CHECKING:
    import triton


def leaderboard(
    db: str = DEFAULT_DB, task: str | None = None, device: str | None = None, limit: int | None = None
) -> Leaderboard:
    """The kernels of a database, best first for each task, device and evidence; limit is for each of these.

    Raises StoreError where the database, the task or the device is not there.
    """
    with Store.open(db, write=False) as store:
        rows = board.build_rows(store, task, device, limit)
        if not rows:
            board.refuse_unknown(store, task, device)
    return Leaderboard(LeaderboardRow(**row) for row in rows)


def best_config(
    task: str, db: str = DEFAULT_DB, device: str | None = None, evidence: str = Evidence.ESTIMATED
) -> triton.Config:
    """The best config that a database has for the task's own kernel, to be put above that kernel.

    `@triton.autotune([kernelsearch.best_config("softmax")], key=[])` tunes nothing at run time; the launcher no longer
    passes what the config sets, and its grid is a function of it. The strongest evidence that there is decides: the
    result's `evidence`, with a warning where no GPU has timed it (`evidence="measured"` refuses that). A rewritten
    kernel has another source: export it as a package. Raises StoreError.
    """
    import triton

    words = [e.value for e in Evidence]
    if evidence not in words:
        raise KernelsearchError(f"evidence is one of {', '.join(words)}, not {evidence!r}")
    enough = words[words.index(evidence) :]
    own = [r for r in leaderboard(db, task, device) if r.parent is None and r.number >= 0 and r.evidence in enough]
    if not own:
        raise StoreError(f"{db} has no {' or '.join(enough)} config of the own kernel of {task}: run optimize first")
    best = max(own, key=lambda r: (words.index(r.evidence), r.speedup))
    if any("." in name for name in best.config):
        raise StoreError(f"{task} launches several kernels, each with a config: export them as a package")
    options = {name: value for name, value in best.config.items() if name in LAUNCH_OPTIONS}
    if best.evidence == Evidence.ESTIMATED.value:
        said = f"the config of {task} is estimated for {best.device}, and no GPU has timed it"
        warnings.warn(f'{said}: search on a GPU, or say evidence="measured" to refuse such ones', stacklevel=2)
    config = triton.Config({n: v for n, v in best.config.items() if n not in options}, **options)
    config.evidence = best.evidence
    return config
