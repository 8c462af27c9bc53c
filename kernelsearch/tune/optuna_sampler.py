"""The default sampler for Optuna's own studies whose parameters are categories, integers or stepped floats.

    study = optuna.create_study(sampler=SurrogateSampler(seed=0))

The search itself asks `Surrogate` directly, without Optuna's bookkeeping; both suggest the same way. Values must be
positive, such as times. A pruned or failed trial counts as a failed config. Parameters must not depend on each other.
"""

from __future__ import annotations

import random
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from kernelsearch.core.errors import SpaceError
from kernelsearch.core.types import Value, config_key
from kernelsearch.kernel.space import Space
from kernelsearch.tune.surrogate import Surrogate

MOST_VALUES = 10_000


class SurrogateSampler(optuna.samplers.BaseSampler):
    """Suggests untried configs while there are any. Raises SpaceError for a parameter that is not a list of values."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._independent = optuna.samplers.RandomSampler(seed)

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return optuna.search_space.intersection_search_space(study.get_trials(deepcopy=False), include_pruned=True)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if not search_space:
            return {}
        space = Space({name: values_of(name, axis) for name, axis in search_space.items()})
        if space.size == 1:
            return next(space.iterate_configs())
        model, begun = Surrogate(space), set()
        sign = 1.0 if study.direction == optuna.study.StudyDirection.MINIMIZE else -1.0
        for other in study.get_trials(deepcopy=False):
            config = {name: other.params[name] for name in search_space if name in other.params}
            if other.number == trial.number or len(config) < len(search_space):
                continue
            begun.add(config_key(config))
            model.begin(config)
            if other.state.is_finished():
                complete = other.state == TrialState.COMPLETE
                model.end(config, other.value**sign if complete else None)
        rng = random.Random(f"{self._seed}/{trial.number}")
        return model.suggest(lambda c: config_key(c) not in begun, rng) or {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._independent.sample_independent(study, trial, param_name, param_distribution)


def values_of(name: str, axis: BaseDistribution) -> tuple[Value, ...]:
    """The values of a parameter, in order. Raises SpaceError when they cannot be listed."""
    if isinstance(axis, CategoricalDistribution):
        return tuple(axis.choices)
    if isinstance(axis, IntDistribution) and not axis.log and (axis.high - axis.low) // axis.step < MOST_VALUES:
        return tuple(range(axis.low, axis.high + 1, axis.step))
    if isinstance(axis, FloatDistribution) and axis.step is not None:
        count = round((axis.high - axis.low) / axis.step) + 1
        return tuple(axis.low + i * axis.step for i in range(min(count, MOST_VALUES)))
    raise SpaceError(f"SurrogateSampler needs lists of values: {name!r} is {axis}; use categories or a step")
