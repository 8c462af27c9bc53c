"""Optuna's TPE over the indices of a space's values, for comparison.

It sees categories: on recorded GPU spaces that did better than ordered integers. Values are logarithms of scores.
Optuna ignores failed trials, and its sampler would return to the same bad region; so a failed config gets a value that
is worse than any real one.
"""

from __future__ import annotations

import math

import numpy as np
import optuna

from kernelsearch.core.types import Config, Value, config_key
from kernelsearch.kernel.space import Space
from kernelsearch.tune.surrogate import Scores

FAILED = math.log(1e6)

Axes = dict[str, optuna.distributions.BaseDistribution]


class OptunaStudy:
    """An Optuna study in memory; the suggestion's seed is the caller's."""

    def __init__(self, space: Space) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        self._varied = {name: values for name, values in space.values.items() if len(values) > 1}
        self._axes: Axes = {
            name: optuna.distributions.CategoricalDistribution(range(len(values)))
            for name, values in self._varied.items()
        }
        self._study = optuna.create_study(direction="minimize", sampler=_make_sampler(0, self._axes))
        self._running: dict[str, int] = {}

    def suggest(self, seed: int) -> dict[str, Value]:
        """A point of the space. Optuna forgets the suggestion; a caller who evaluates it calls `begin`."""
        self._study.sampler = _make_sampler(seed, self._axes)
        trial = self._study.ask(self._axes)
        self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        chosen = {name: values[trial.params[name]] for name, values in self._varied.items()}
        return {name: chosen.get(name, values[0]) for name, values in self._space.values.items()}

    def begin(self, config: Config) -> None:
        """Records that a config is being evaluated; one from outside the space is ignored."""
        if config in self._space:
            indices = {name: values.index(config[name]) for name, values in self._varied.items()}
            self._study.enqueue_trial(indices)
            self._running[config_key(config)] = self._study.ask(self._axes).number

    def end(self, config: Config, score: Scores) -> None:
        """Records what a begun config took: of several shapes the geometric mean counts."""
        number = self._running.pop(config_key(config), None)
        if number is not None:
            self._study.tell(number, FAILED if score is None else float(np.log(score).mean()))


def _make_sampler(seed: int, axes: Axes) -> optuna.samplers.BaseSampler:
    class KnownAxes(optuna.samplers.TPESampler):
        """TPE with known axes: inferring them from all trials is most of the cost of an ask."""

        def infer_relative_search_space(self, study, trial):
            return axes

    return KnownAxes(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=0)
