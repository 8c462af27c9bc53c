"""Cards of one model differ: times are told in the seed's time on the same card, and a card that drifts is set aside.

Each card times the seed at the start and every so often. A time on it is multiplied by the ratio of the first card's
time of the seed to its own; so every score is a ratio to the seed on the card that timed it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kernelsearch.core.types import Measurement, ShapeTime

DRIFT = 0.05
"""A seed's time on one card may move by so much between two looks; a second look decides."""

EVERY = 100
"""Trials on a card between two looks at its seed."""

Times = Mapping[str, float]


@dataclass
class Card:
    """A card's name for the record, the seed's first and newest times on it, and trials since then."""

    name: str
    first: Measurement
    seed_us: Times
    trials: int = 0


@dataclass
class Cards:
    """The cards of a run by their workers' names; unit has the seed's times that all others are told in, by shape.

    May be used by several threads. unit is that of the first card, or of the run that goes on.
    """

    unit: Times = field(default_factory=dict)
    by_station: dict[str, Card] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def add(self, station: str, name: str, seed: Measurement) -> None:
        """Adds a worker's card, or a new one where Ray put a lost worker."""
        with self._turn:
            self.unit = self.unit or seed.by_shape
            self.by_station[station] = Card(name, seed, seed.by_shape)

    def is_due(self, station: str) -> bool:
        """Counts a trial; true when the seed is to be timed again. One caller is told so."""
        with self._turn:
            card = self.by_station[station]
            card.trials = (card.trials + 1) % EVERY
            return card.trials == 0

    def find_drift(self, station: str, seed: Measurement) -> float:
        """By how much the seed's time moved since the start, 0.05 for 5 % slower; within DRIFT it is the new one."""
        with self._turn:
            card = self.by_station[station]
            first = card.first.by_shape
            logs = [math.log(us / first[shape]) for shape, us in seed.by_shape.items()]
            drift = math.exp(math.fsum(logs) / len(logs)) - 1.0
            if abs(drift) <= DRIFT:
                card.seed_us = {**card.seed_us, **seed.by_shape}
            return drift

    def to_unit(self, station: str, measurement: Measurement, about: Mapping[str, object]) -> Measurement:
        """The times in the unit of the run; the first one's detail names the card, and the factor that was applied."""
        card = self.by_station[station]
        first, *rest = _scale(measurement, self.unit, card.seed_us)
        factor = first.time_us / measurement.times[0].time_us
        where = {"name": card.name, **about, "factor": round(factor, 6)}
        return replace(measurement, times=(replace(first, detail={**first.detail, "card": where}), *rest))

    def from_unit(self, station: str, measurement: Measurement | None) -> Measurement | None:
        """An incumbent's times as this card would have them."""
        if measurement is None or station not in self.by_station:
            return measurement
        return replace(measurement, times=_scale(measurement, self.by_station[station].seed_us, self.unit))


def _scale(measurement: Measurement, to: Times, of: Times) -> tuple[ShapeTime, ...]:
    """The times multiplied by the ratio of two seeds' times at each shape."""
    factors = {shape: to[shape] / of[shape] for shape in measurement.by_shape}
    return tuple(
        replace(t, time_us=t.time_us * factors[t.shape], spread_us=(t.spread_us or 0.0) * factors[t.shape])
        for t in measurement.times
    )
