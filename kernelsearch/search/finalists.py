"""Chooses the candidates that are confirmed after a search: the best structures overall, and the best at single shapes.

The search's own times only choose; claims come from the confirmation alone. The number of finalists is limited, since
each costs time on the GPU and widens every interval (`comparisons`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelsearch.core.types import TaskFacts, Trial, config_key, is_gain
from kernelsearch.search.history import score_of, time_of

OVERALL = 3
"""Structures that are confirmed at every timed shape."""

CHAMPIONS = 4
"""Shapes that may bring a finalist of their own."""

LOOKED_AT = 3
"""A shape gets no champion once this many of its trials were rejected at full depth."""


@dataclass(frozen=True)
class Finalist:
    """A trial whose candidate is confirmed at these shapes by key; a champion is the best at these alone."""

    trial: Trial
    shapes: tuple[str, ...]
    champion: bool = False


def choose_finalists(
    task: TaskFacts, seed: str, trials: Sequence[Trial], accepted: Callable[[Trial], bool]
) -> tuple[Finalist, ...]:
    """The best structures overall with their best configs, then the champions of single shapes.

    seed is the digest of the task's own kernel, which with its own config is a baseline and no finalist; accepted gives
    the full verdict. Where no structure gains overall, the champion that loses least is confirmed at every shape, to
    know what to run at the others.
    """
    own = (seed, config_key(task.config))
    timed = [t for t in trials if t.outcome.measurement and not t.outcome.measurement.abandoned]
    timed.sort(key=lambda t: (score_of(t), t.number))
    whole = tuple(shape.key for shape in task.shapes)
    overall = [Finalist(t, whole) for t in _overall([t for t in timed if _key(t) != own], accepted)]
    bars = {shape: _bar(shape, [t for t in timed if _key(t) == own] + [f.trial for f in overall]) for shape in whole}
    by_candidate: dict[tuple[str, str], tuple[Trial, list[str]]] = {}
    by_gain = sorted(whole, key=lambda s: _gain(s, timed, bars[s]), reverse=True) if len(whole) > 1 else []
    for shape in by_gain[:CHAMPIONS]:
        better = [t for t in timed if is_gain(bars[shape] / time_of(t, shape)) and _key(t) != own]
        better.sort(key=lambda t: (time_of(t, shape), t.number))
        champion = next((t for t in better[:LOOKED_AT] if accepted(t)), None)
        if champion is not None:
            by_candidate.setdefault(_key(champion), (champion, []))[1].append(shape)
    champions = [Finalist(t, tuple(s for s in whole if s in at), True) for t, at in by_candidate.values()]
    if champions and not overall:
        least = min(champions, key=lambda f: (score_of(f.trial), f.trial.number))
        champions[champions.index(least)] = Finalist(least.trial, whole)
    return (*overall, *champions)


def count_comparisons(chosen: Sequence[Finalist]) -> int:
    """How many intervals must hold together: each finalist's at each of its shapes, and those over several shapes."""
    return sum(len(f.shapes) + (len(f.shapes) > 1) for f in chosen)


def _overall(timed: Sequence[Trial], accepted: Callable[[Trial], bool]) -> list[Trial]:
    """Each kernel's best trial (timed is sorted), the best kernels first, if it gains on the seed and is accepted.

    Of those that gain next to nothing (`is_gain`) one is enough.
    """
    firsts: dict[str, Trial] = {}
    for trial in timed:
        firsts.setdefault(trial.kernel, trial)
    chosen: list[Trial] = []
    for trial in firsts.values():
        if len(chosen) == OVERALL or not (is_gain(1 / score_of(trial)) if chosen else score_of(trial) < 1.0):
            break
        chosen += [trial] * accepted(trial)
    return chosen


def _key(trial: Trial) -> tuple[str, str]:
    return trial.kernel, config_key(trial.config)


def _bar(shape: str, trials: Sequence[Trial]) -> float:
    return min((time_of(t, shape) for t in trials), default=math.inf)


def _gain(shape: str, timed: Sequence[Trial], bar: float) -> float:
    best = _bar(shape, timed)
    return bar / best if best < math.inf else 0.0
