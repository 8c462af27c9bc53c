"""The gain of each step of a lineage with one config for all: the ancestors' times with the last kernel's config.

Times of ancestors that were each tuned on their own say who was tuned more, not what a step gains. Rows of
`measurement` have a step's times; their detail names the candidate that they belong to (`beside`) and the `place` on
the way there: 0 the seed with its own config, 1 the seed with the last kernel's, and so on up to the last kernel.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelsearch.core.types import Config, Evidence, Measurement, ShapeTime
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import Run, candidate_digest, geometric_mean
from kernelsearch.record.store import Store


@dataclass(frozen=True)
class PlacedStep:
    """A kernel of a lineage with the config that it is timed with, at its place; without times where it was refused."""

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
        times = [ShapeTime(t.shape, t.time_us, specialisation=json.dumps(about), detail=about) for t in self.times]
        return replace(self.measurement, evidence=evidence, times=tuple(times))

    @property
    def times(self) -> tuple[ShapeTime, ...]:
        return self.measurement.times if self.measurement else ()


def load_step_gains(store: Store, candidate: str, device: str) -> dict[str, float | None]:
    """Each kernel's gain over its parent (the seed's: what the config alone gains), from the newest times together.

    Empty where nothing was timed. Where a step has no time, the next one's gain is that of both.
    """
    rows = store.query(
        """SELECT m.*, candidate.kernel FROM measurement AS m JOIN candidate ON candidate.digest = m.candidate
           WHERE json_extract(m.detail, '$.beside') = ? AND m.device = ? ORDER BY m.measured""",
        [candidate, device],
    )
    newest = [r for r in rows if (r["protocol"], r["versions"]) == (rows[-1]["protocol"], rows[-1]["versions"])]
    times: dict[int, dict[str, float]] = {}
    kernels: dict[int, str] = {}
    for row in newest:
        place = json.loads(row["detail"])["place"]
        kernels[place] = row["kernel"]
        times.setdefault(place, {})[row["shape"]] = row["time_us"]
    gains: dict[str, float | None] = {}
    before = times.get(0, {})
    for place in sorted(times)[1:]:
        now = times[place]
        gains[kernels[place]] = geometric_mean([us / now[shape] for shape, us in before.items() if shape in now])
        before = now
    return gains


def add_steps(store: Store, run: Run, steps: Sequence[PlacedStep]) -> None:
    """Adds the times of the steps on the way to the last one."""
    if not steps:
        return
    last = candidate_digest(run.task, steps[-1].kernel.digest, steps[-1].config)
    stored = ((s.kernel.digest, s.config, s.as_stored(last)) for s in steps)
    store.add_measurements(run, [(k, c, m) for k, c, m in stored if m is not None])
