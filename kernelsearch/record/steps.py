"""The gain of each step of a lineage with one config for all: the ancestors' times with the last kernel's config.

Times of ancestors that were each tuned on their own say who was tuned more, not what a step gains. Rows of
`measurement` have a step's times; their detail names the candidate that they belong to (`beside`) and the `place` on
the way there: 0 the seed with its own config, 1 the seed with the last kernel's, and so on up to the last kernel.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kernelsearch.core.types import Config, Evidence, Measurement, ShapeTime, is_gain
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import Run, candidate_digest, score_times
from kernelsearch.record.store import Store


@dataclass(frozen=True)
class PlacedStep:
    """A kernel of a lineage with the config that it is timed with, at its place; no times where it was refused."""

    place: int
    kernel: Kernel
    config: Config
    measurement: Measurement | None = None

    def as_stored(self, beside: str) -> Measurement | None:
        """Its times as rows that count for nothing but the lineage of the candidate `beside`."""
        if self.measurement is None:
            return None
        evidence = Evidence.ESTIMATED if self.measurement.evidence is Evidence.ESTIMATED else Evidence.MEASURED
        about = {"beside": beside, "place": self.place}
        times = [
            ShapeTime(t.shape, t.time_us, specialisation=json.dumps(about), detail=about)
            for t in self.measurement.times
        ]
        return replace(self.measurement, evidence=evidence, times=tuple(times))


CONFIG_ALONE = "the rewrite adds less than 1%: the task's own kernel is as fast with this config"


def is_config_alone(speedup: float, tuning: float | None) -> bool:
    """Whether a kernel gains what its config gains with the seed's own source."""
    return tuning is not None and is_gain(tuning) and not is_gain(speedup / tuning)


def load_step_gains(store: Store, candidate: str, device: str) -> dict[str, float | None]:
    """By kernel its gain over its parent with one config for all, for the seed what the config alone gains.

    A gain is one score over another (`score_times`), so that all of them multiply to the run's. The newest times
    together say it, nothing where there are none. Where a step has no time, the next one's gain is that of both.
    """
    rows = store.query(
        """SELECT m.*, candidate.kernel FROM measurement AS m JOIN candidate ON candidate.digest = m.candidate
           WHERE json_extract(m.detail, '$.beside') = ? AND json_extract(m.detail, '$.place') IS NOT NULL
             AND m.device = ? ORDER BY m.measured""",
        [candidate, device],
    )
    newest = [r for r in rows if (r["protocol"], r["versions"]) == (rows[-1]["protocol"], rows[-1]["versions"])]
    times: dict[int, dict[str, float]] = {}
    kernels: dict[int, str] = {}
    for row in newest:
        about = json.loads(row["detail"])
        kernels[about["place"]] = row["kernel"]
        times.setdefault(about["place"], {})[row["shape"]] = row["time_us"]
    scores = {place: score_times(own, times[min(times)]) or 1.0 for place, own in times.items()}
    return {kernels[place]: scores[before] / scores[place] for before, place in pairwise(sorted(times))}


def add_steps(store: Store, run: Run, steps: Sequence[PlacedStep]) -> None:
    """Adds the times of the steps on the way to the last one."""
    if not steps:
        return
    last = candidate_digest(run.task, steps[-1].kernel.digest, steps[-1].config)
    stored = ((s.kernel.digest, s.config, s.as_stored(last)) for s in steps)
    store.add_measurements(run, [(k, c, m) for k, c, m in stored if m is not None])
