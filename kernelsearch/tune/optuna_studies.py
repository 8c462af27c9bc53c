"""Optuna's samplers TPE, Gaussian process and CMA-ES over the indices of a space's values, for comparison.

TPE sees categories: on recorded GPU spaces that did better than ordered integers. The other two need numbers. Values
are logarithms of scores. Optuna ignores failed trials, and its samplers would return to the same bad region; so a
failed config gets a value that is worse than any real one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

import optuna

from kernelsearch.core import extras
from kernelsearch.core.errors import StrategyError
from kernelsearch.core.types import Config, Value, config_key
from kernelsearch.kernel.space import Space

FAILED = math.log(1e6)
WORSE = 0.5
"""For a Gaussian process a failed config counts as the worst time plus this, in logarithms."""

Axes = Mapping[str, optuna.distributions.BaseDistribution]


class OptunaStudy:
    """An Optuna study in memory with one of its samplers; the suggestion's seed is the caller's."""

    def __init__(self, space: Space, sampler: str) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space, self._kind = space, sampler
        self._varied = {name: values for name, values in space.values.items() if len(values) > 1}
        self._axes: Axes = {name: _make_distribution(sampler, len(values)) for name, values in self._varied.items()}
        self._study = optuna.create_study(direction="minimize", sampler=_make_sampler(sampler, 0, self._axes))
        self._running: dict[str, int] = {}
        self._worst = 0.0

    def suggest(self, seed: int) -> dict[str, Value]:
        """A point of the space. Optuna forgets the suggestion; a caller who evaluates it calls `begin`."""
        # CMA-ES continues its own randomness from one generation to the next.
        if self._kind != "cmaes" or not self._study.trials:
            self._study.sampler = _make_sampler(self._kind, seed, self._axes)
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

    def end(self, config: Config, score: float | None) -> None:
        number = self._running.pop(config_key(config), None)
        if number is None:
            return
        if score is not None:
            self._worst = max(self._worst, math.log(score))
        failed = self._worst + WORSE if self._kind == "gp" else FAILED
        self._study.tell(number, failed if score is None else math.log(score))


def _make_distribution(sampler: str, count: int) -> optuna.distributions.BaseDistribution:
    if sampler == "tpe":
        return optuna.distributions.CategoricalDistribution(range(count))
    return optuna.distributions.IntDistribution(0, count - 1)


def _make_sampler(kind: str, seed: int, axes: Axes) -> optuna.samplers.BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        if kind == "gp":
            return optuna.samplers.GPSampler(seed=seed, n_startup_trials=0, deterministic_objective=True)
        if kind == "cmaes":
            try:
                return optuna.samplers.CmaEsSampler(seed=seed, n_startup_trials=1, warn_independent_sampling=False)
            except ImportError:
                raise StrategyError(f"the sampler cmaes needs a package: {extras.install_command('cmaes')}") from None

    class KnownAxes(optuna.samplers.TPESampler):
        """TPE with known axes: inferring them from all trials is most of the cost of an ask."""

        def infer_relative_search_space(self, study, trial):
            return axes

    return KnownAxes(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=0)
