"""Chooses what is confirmed after a search: of one shape the best structures, of several a table.

A table is at most a given number of candidates, and which shapes each serves: the first is the one that gains most over
the seed, the seed running where it does not gain; each next one gains most beside those before it. The search's own
times only choose; claims come from the confirmation alone. The number of finalists is limited, since each costs time
on the GPU and widens every interval (`comparisons`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelsearch.core.types import Trial, config_key, is_gain
from kernelsearch.measure.timing.by_shape import choose_table
from kernelsearch.record.rows import KERNELS

OVERALL = 3
"""Structures that are confirmed where there is one timed shape."""


@dataclass(frozen=True)
class Finalist:
    """A trial whose candidate is confirmed at these shapes by key, and serves some of them.

    A champion is one beside the first of a table.
    """

    trial: Trial
    shapes: tuple[str, ...]
    serves: tuple[str, ...]
    champion: bool = False


def choose_finalists(
    shapes: Sequence[str], trials: Sequence[Trial], accepted: Callable[[Trial], bool], kernels: int = KERNELS
) -> tuple[Finalist, ...]:
    """The finalists, the first at all shapes, to know what to run between them, the others at those that they serve.

    The first trial is of the task's own kernel, which with that config is a baseline and no finalist; accepted gives
    the full verdict. kernels is the size of a table.
    """
    own = _key(trials[0]) if trials else None
    timed = [t for t in trials if t.outcome.measurement and not t.outcome.measurement.abandoned]
    timed.sort(key=lambda t: (t.score, t.number))
    whole = tuple(shapes)
    if len(whole) == 1:
        best = _choose_best([t for t in timed if _key(t) != own], accepted)
        return tuple(Finalist(t, whole, () if place else whole) for place, t in enumerate(best))
    own_times = [m.by_shape for t in timed if _key(t) == own and (m := t.outcome.measurement)]
    unit = {shape: min((us.get(shape, math.inf) for us in own_times), default=math.inf) for shape in whole}

    def ratios(trial: Trial) -> dict[str, float]:
        times = trial.outcome.measurement.by_shape if trial.outcome.measurement else {}
        return {shape: times[shape] / unit[shape] for shape in whole if shape in times}

    seed = next((t for t in timed if _key(t) == own), None)
    able = [t for t in timed if _key(t) != own or t is seed]
    table = choose_table(able, ratios, lambda t: (t.outcome.verdict.depth != "full", t.number), seed, kernels, accepted)
    places = {shape: trial for shape, trial in table.items() if trial is not seed}
    serving: dict[tuple[str, str], tuple[Trial, list[str]]] = {}
    for shape in (s for s in whole if s in places):
        serving.setdefault(_key(places[shape]), (places[shape], []))[1].append(shape)
    ranked = sorted(serving.values(), key=lambda entry: (entry[0].score, entry[0].number))
    return tuple(Finalist(t, tuple(at) if n else whole, tuple(at), n > 0) for n, (t, at) in enumerate(ranked))


def list_entries(shapes: Sequence[str], trials: Sequence[Trial], kernels: int = KERNELS) -> list[Finalist]:
    """The table by the search's own times alone: what serves a shape."""
    return [f for f in choose_finalists(shapes, trials, lambda trial: True, kernels) if f.serves]


def count_comparisons(chosen: Sequence[Finalist]) -> int:
    """How many intervals must hold together: each finalist's at each of its shapes, and those over several shapes."""
    return sum(len(f.shapes) + (len(f.shapes) > 1) for f in chosen)


def _choose_best(timed: Sequence[Trial], accepted: Callable[[Trial], bool]) -> list[Trial]:
    """Each kernel's best trial (timed is sorted), the best kernels first, if it gains on the seed and is accepted.

    Of those that gain next to nothing (`is_gain`) one is enough.
    """
    firsts: dict[str, Trial] = {}
    for trial in timed:
        firsts.setdefault(trial.kernel, trial)
    chosen: list[Trial] = []
    for trial in firsts.values():
        gains = trial.score is not None and (is_gain(1 / trial.score) if chosen else trial.score < 1.0)
        if len(chosen) == OVERALL or not gains:
            break
        chosen += [trial] * accepted(trial)
    return chosen


def _key(trial: Trial) -> tuple[str, str]:
    return trial.kernel, config_key(trial.config)
