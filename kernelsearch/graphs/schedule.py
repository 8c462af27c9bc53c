"""`optimize` for all regions of a database: rounds of trials to the one with the largest expected gain left.

What is left for a region is its share of the step times the distance of its best time from its floor; a round that
gains nothing halves it (after the gradient scheduler of Ansor, Zheng et al. 2020, section 6).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelsearch.api.optimization import optimize
from kernelsearch.core.errors import KernelsearchError, StoreError, TaskError
from kernelsearch.core.slow_steps import Say
from kernelsearch.core.types import Evidence
from kernelsearch.graphs.collect import file_of, folder_of
from kernelsearch.graphs.region_report import align, total_by_region
from kernelsearch.record import region_rows
from kernelsearch.record.store import Store

ROUND = 100  # trials of a round, if nothing else is said
STALE = 3  # rounds without a gain after which a region is left
LEAST_GAIN = 0.0005  # of the step: what is not worth a round


@dataclass
class RegionTurn:
    """A region that is searched: its share of the step, its floor over its time, and what its rounds gave."""

    region: str
    file: str
    name: str
    share: float
    floor: float
    score: float = 1.0
    trials: int = 0
    stale: int = 0

    @property
    def left(self) -> float:
        """The share of the step that more trials may gain."""
        return self.share * max(0.0, self.score - self.floor) * 0.5**self.stale if self.stale < STALE else 0.0


def load_turns(db: str) -> list[RegionTurn]:
    """The regions of the newest look at each model, with the shares of all of them. Raises StoreError without any."""
    with Store.open(db, write=False) as store:
        regions, uses, turns = region_rows.load_regions(store), region_rows.load_uses(store), []
        measured = [use for use in uses if use["evidence"] == Evidence.MEASURED.value]
        for row in total_by_region(measured or uses):
            known = regions[row["region"]]
            if not known["refusal"]:
                file = file_of(db, row["region"])
                best = region_rows.find_best(store, file.stem) or {}
                floor = 1 - row["saving"] / row["share"] if row["share"] else 1.0
                score, trials = best.get("score") or 1.0, best.get("trials") or 0
                turns.append(RegionTurn(row["region"], str(file), known["name"], row["share"], floor, score, trials))
    if not uses:
        raise StoreError(f"{db} has no regions: `kernelsearch collect SCRIPT.py --db {db}` finds those of a model")
    if turns and not any(Path(turn.file).exists() for turn in turns):
        raise StoreError(
            f"the regions of {db} are files in {folder_of(db)}, which is not there: copy it with the database, or "
            f"`kernelsearch collect SCRIPT.py --db {db}` makes it again"
        )
    return turns


def optimize_regions(db: str, hours: float, say: Say, options: Mapping[str, Any]) -> str:
    """Searches a database's regions for so long; a table of what each gained alone. options are those of `optimize`."""
    ends, turns, each = time.monotonic() + 3600 * hours, load_turns(db), options.get("trials", ROUND)
    while turns and (turn := max(turns, key=lambda t: t.left)).left > LEAST_GAIN and time.monotonic() < ends:
        say(f"region {turn.region} ({turn.name}): {turn.share:.1%} of the step, {turn.left:.1%} may be left")
        more = {**options, "db": db, "trials": turn.trials + each, "resume": turn.trials > 0}
        try:
            done = optimize(turn.file, **more, budget_seconds=max(1.0, ends - time.monotonic()))
        except KernelsearchError as error:
            say(f"region {turn.region} is left out: {error}")
            turn.stale = STALE
            if isinstance(error, TaskError):  # what a worker does wrong may pass
                with Store.open(db) as store:
                    region_rows.refuse_region(store, turn.region, str(error))
            continue
        score = 1 / done.best.speedup if done.best else 1.0
        turn.stale = 0 if score < 0.99 * turn.score else turn.stale + 1
        turn.score, turn.trials = min(score, turn.score), max(done.trials, turn.trials + 1)
        if done.interrupted:
            break
    gains = [f"{1 / t.score:.3g}x" if t.trials else "not tried" for t in turns]
    rows = [(t.region, f"{t.share:.1%}", str(t.trials), gain, t.name) for t, gain in zip(turns, gains, strict=True)]
    return "\n".join(align(("region", "share", "trials", "alone", "operations"), rows))
