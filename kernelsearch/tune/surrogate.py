"""The default sampler: a Gaussian process over the logarithm of the times, and expected improvement over free configs.

This is Bayesian optimisation in the form that works on GPU tuning spaces (Willemsen et al., 2021) and on the spaces
recorded in studies/spaces. In a small space all free configs are compared, in a large one a sample and the neighbours
of the best. A failed config counts as the slowest measured one: its neighbourhood is avoided, and the landscape gets no
steeper. Configs in flight are believed to take their predicted time ("kriging believer", Ginsbourger et al., 2010).
Suggestions are a function of the configs that began and ended, not of earlier suggestions: parameters are learnt on the
first 6, 8, 10, 13, 16, ... configs, whenever that many have ended.

A config may have times at several shapes, each an output of the process. What counts is the best config of each shape:
the expected improvement is the sum over the shapes, and a config is good if it is near the best somewhere.

Where estimates are known (`estimates.py`), the process models the difference between times and estimates, and there are
predictions from the first config on. Once DESIGN configs have ended, every second suggestion ignores the estimates:
they tell good configs from bad ones, but not well which of the good ones is best.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from scipy.special import ndtr
from threadpoolctl import ThreadpoolController

from kernelsearch.core.types import Config, Value
from kernelsearch.kernel.space import Space
from kernelsearch.tune.axes import Axes
from kernelsearch.tune.estimates import Estimates
from kernelsearch.tune.gaussian_process import GaussianProcess

Free = Callable[[Config], bool]
"""Whether a config may be suggested: possible, and not asked before."""
Scores = float | Sequence[float] | None
"""What a config took: one number or one per shape, positive and in any unit; None for one that failed."""


# On recorded spaces (studies/spaces) no variation of these numbers was better beyond chance.
DESIGN = 6
"""The process is used once this many configs have ended."""
APART = 2
"""Until then the farthest of this many random configs is taken; with more, only corners would be found."""
ENUMERATED, SAMPLED, AROUND = 1024, 256, 8
"""A space up to ENUMERATED is compared as a whole; of a larger one, SAMPLED random configs and the neighbours of the
AROUND best."""
KEPT_BEST, KEPT_LAST = 96, 64
"""If there are more configs than both together, the process sees the best and the latest ones."""
SHARP = 8.0
"""A config is ranked by the power mean with this exponent, negative, of its distances from the best of each shape."""
GROWTH = 1.3
"""Parameters are learnt again each time the number of ended configs has grown by this factor."""


@functools.cache
def _find_blas() -> ThreadpoolController:
    """The loaded BLAS: its threads cost these small matrices more than they give, and compilers want the cores."""
    return ThreadpoolController()


class Surrogate:
    """Suggests configs of one space.

    listed are all possible configs, where they are known; estimates are configs with estimated times in any unit.
    """

    def __init__(
        self,
        space: Space,
        listed: Sequence[Config] | None = None,
        estimates: Sequence[tuple[Config, float | Sequence[float]]] = (),
    ) -> None:
        self.axes = Axes(space)
        self._process = GaussianProcess([axis.distances for axis in self.axes.axes])
        self._all = self.axes.list_points() if listed is None and space.size <= ENUMERATED else None
        if listed is not None:
            self._all = np.array([self.axes.point_of(c) for c in listed])
        self._strides = np.cumprod([1, *self.axes.shape[:-1]], dtype=np.int64)  # a point's number in the whole product
        self._begun: list[tuple[int, ...]] = []
        self._place: dict[tuple[int, ...], int] = {}
        self._ended: list[int] = []
        self._scores: dict[int, np.ndarray | None] = {}
        self._outputs = 1
        self._learnt = 0
        self._rest, self._rest_learnt = GaussianProcess(self._process.distances), 0
        known = {p: np.atleast_1d(us) for config, us in estimates if (p := self.axes.point_of(config)) is not None}
        self._estimates: Estimates | None = None
        if len(known) >= DESIGN:
            self._estimates = Estimates(self._process.distances, np.array(list(known)), list(known.values()))
            self._outputs = len(next(iter(known.values())))

    def begin(self, config: Config) -> None:
        """Records that a config is being evaluated; one from outside the space is ignored."""
        point = self.axes.point_of(config)
        if point is not None and point not in self._place:
            self._place[point] = len(self._begun)
            self._begun.append(point)

    def has_begun(self, config: Config) -> bool:
        """Whether a config is being evaluated, or has been."""
        return self.axes.point_of(config) in self._place

    def end(self, config: Config, score: Scores) -> None:
        """Records what a begun config took."""
        place = self._place.get(self.axes.point_of(config) or ())
        if place is not None and place not in self._scores:
            self._ended.append(place)
            self._scores[place] = times = None if score is None else np.atleast_1d(score)
            self._outputs = self._outputs if times is None else len(times)

    @property
    def ready(self) -> bool:
        """Whether enough is known for the process to predict."""
        return (self._estimates is not None and bool(self._begun)) or self._measured

    @property
    def _measured(self) -> bool:
        times = sum(s is not None for s in self._scores.values()) if len(self._ended) < 64 else 2
        return len(self._ended) >= DESIGN and times >= 2

    def suggest(self, free: Free, rng: random.Random) -> dict[str, Value] | None:
        """The most promising free config; None when none is found among the candidates."""
        draw = np.random.default_rng(rng.getrandbits(64))
        if not self.ready:
            return self._spread_out(free, draw)
        candidates = self._list_candidates(draw)
        if not len(candidates):
            return None
        mean, deviation = self._predict(candidates, self._by_estimates)
        improvement = np.logaddexp.reduce(log_expected_improvement(mean, deviation, self._best_values()), axis=1)
        best_first = candidates[np.argsort(-improvement, kind="stable")]
        return next((c for c in map(self.axes.config_at, best_first) if free(c)), None)

    def pick_best(self, around: Iterable[Config], free: Free) -> dict[str, Value] | None:
        """The free one of these configs with the least expected time."""
        points = {p: c for c in around if free(c) and (p := self.axes.point_of(c)) is not None}
        if not points:
            return None
        mean, _ = self._predict(np.array(list(points)), self._by_estimates)
        return dict(list(points.values())[int(np.argmin(self._rank(mean)))])

    def expect_gain(self, config: Config) -> float:
        """The expected improvement of the logarithm of the least times: infinity while too little is known."""
        point = self.axes.point_of(config)
        if point is None or not self.ready:
            return math.inf
        mean, deviation = self._predict(np.array([point]), self._by_estimates)
        return float(np.exp(log_expected_improvement(mean, deviation, self._best_values())).mean())

    # ------------------------------------------------------------ candidates

    def _list_candidates(self, draw: np.random.Generator) -> np.ndarray:
        points = self._all
        if points is None or len(points) > ENUMERATED:
            points = np.concatenate([self._draw(SAMPLED, draw), self._list_neighbours()])
            points = points[np.unique(points @ self._strides, return_index=True)[1]]
        begun = np.array(self._begun) @ self._strides
        return points[~np.isin(points @ self._strides, begun)]

    def _list_neighbours(self) -> np.ndarray:
        best = self._sort_timed(self._ended)[:AROUND]
        near = [p for i in best for p in self.axes.iterate_neighbours(np.array(self._begun[i]))]
        return np.array(near, dtype=int).reshape(len(near), len(self.axes.shape))

    def _spread_out(self, free: Free, draw: np.random.Generator) -> dict[str, Value] | None:
        """The one of a few random free configs that is farthest from all begun ones."""
        points = self._draw(32 * APART, draw)
        untried = (p for p in points if tuple(p.tolist()) not in self._place and free(self.axes.config_at(p)))
        chosen = list(itertools.islice(untried, APART))
        if not chosen:
            return None
        if not self._begun:
            return self.axes.config_at(chosen[0])
        points, begun = np.array(chosen), np.array(self._begun[-64:])
        apart = sum(t[points[:, i]][:, begun[:, i]] for i, t in enumerate(self._process.distances)).min(axis=1)
        return self.axes.config_at(points[int(np.argmax(apart))])

    def _draw(self, count: int, draw: np.random.Generator) -> np.ndarray:
        """Uniform points of the space, repeats possible; shape (count, axes)."""
        if self._all is None:
            return self.axes.draw(count, draw)
        return self._all[draw.integers(len(self._all), size=count)]

    # ------------------------------------------------------------ the process

    @property
    def _by_estimates(self) -> bool:
        """Whether this suggestion uses the estimates."""
        return self._estimates is not None and (not self._measured or len(self._begun) % 2 == 0)

    def _predict(self, candidates: np.ndarray, by_estimates: bool) -> tuple[np.ndarray, np.ndarray]:
        with _find_blas().limit(limits=1, user_api="blas"):
            known = self._estimates if by_estimates else None
            return self._from_times(candidates) if known is None else self._from_estimates(known, candidates)

    def _from_times(self, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if (count := self._count_due()) != self._learnt:
            places = self._select_places(self._ended[:count])
            self._process.learn(self._points_at(places), self._values_at(places))
            self._learnt = count
        places = self._select_places(self._ended)
        self._process.fit(self._points_at(places), self._values_at(places), self._points_in_flight())
        return self._process.predict(candidates)

    def _from_estimates(self, estimates: Estimates, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The trusted share of the estimates, plus what a process predicts for the rest of the times."""
        places = self._select_places(self._ended) if any(s is not None for s in self._scores.values()) else []
        points, values = self._points_at(places), self._values_at(places)
        estimated = estimates.predict(points)[0] if places else values
        trust, apart = estimates.fit_trust(estimated, values)
        if (count := self._count_due()) and count != self._rest_learnt:
            first = self._select_places(self._ended[:count])
            known, measured = estimates.predict(self._points_at(first))[0], self._values_at(first)
            self._rest.learn(self._points_at(first), measured - estimates.fit_trust(known, measured)[0] * known)
            self._rest_learnt = count
        self._rest.fit(points, values - trust * estimated, self._points_in_flight(), None if count else apart)
        (rest, deviation), (mean, unsure) = self._rest.predict(candidates), estimates.predict(candidates)
        return trust * mean + rest, np.hypot(deviation, trust * unsure)

    def _points_at(self, places: Sequence[int]) -> np.ndarray:
        return np.array([self._begun[i] for i in places], dtype=int).reshape(len(places), len(self.axes.shape))

    def _points_in_flight(self) -> np.ndarray | None:
        flying = [i for i in range(len(self._begun)) if i not in self._scores][-KEPT_LAST:]
        return self._points_at(flying) if flying else None

    def _count_due(self) -> int:
        """The number of configs on which parameters are learnt now, by the schedule; 0 while it is too early."""
        if not self._measured:
            return 0
        count = due = DESIGN
        while due <= len(self._ended):
            count, due = due, max(due + 2, int(due * GROWTH))
        return count

    def _select_places(self, ended: list[int]) -> list[int]:
        most, last = KEPT_BEST + KEPT_LAST, ended[-KEPT_LAST:]
        if len(ended) <= most:
            return ended
        return sorted([*self._sort_timed(ended[:-KEPT_LAST])[:KEPT_BEST], *last])

    def _sort_timed(self, ended: Sequence[int]) -> list[int]:
        """Those that did not fail, the best first."""
        timed = [i for i in ended if self._scores[i] is not None]
        ranks = self._rank(np.log(np.array([self._scores[i] for i in timed]))) if timed else ()
        return [i for _, i in sorted(zip(ranks, timed, strict=True))]

    def _rank(self, logs: np.ndarray) -> np.ndarray:
        """How far each row of logarithms of times is from the best of each shape: less is better."""
        if logs.shape[1] == 1:
            return logs[:, 0]
        return -np.log(np.exp(-SHARP * (logs - self._best_values())).mean(1)) / SHARP

    def _values_at(self, places: Sequence[int]) -> np.ndarray:
        scores = [self._scores[i] for i in places]
        times = [s for s in scores if s is not None]
        worst = np.max(times, axis=0) if times else np.ones(self._outputs)
        known = [worst if s is None else s for s in scores]
        return np.log(np.array(known)) if known else np.zeros((0, self._outputs))

    def _best_values(self) -> np.ndarray:
        """The logarithm of the least time at each shape; before there is one, of the least expected time in flight."""
        times = [s for s in self._scores.values() if s is not None]
        if times or self._estimates is None:
            return np.log(np.min(times, axis=0)) if times else np.zeros(self._outputs)  # failures count as 1
        return self._predict(self._points_at(range(len(self._begun))), True)[0].min(0)


def log_expected_improvement(mean: np.ndarray, deviation: np.ndarray, best: np.ndarray) -> np.ndarray:
    """log E[max(best - value, 0)] of normal values, finite even where E underflows (Ament et al., 2023)."""
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
    inner = np.maximum(z * ndtr(z) + density, 1e-290)
    # Far below, E ~ density / z^2: through logarithms.
    far = -0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - 2.0 * np.log(np.maximum(-z, 1.0))
    return np.where(z > -12.0, np.log(inner), far) + np.log(deviation)
