"""The default sampler in a study of the user's own: better than chance, never a config twice, either direction."""

import optuna
import pytest

from kernelsearch.core.errors import SpaceError
from kernelsearch.tune.optuna_sampler import SurrogateSampler

optuna.logging.set_verbosity(optuna.logging.WARNING)


def time_of(trial):
    block = trial.suggest_categorical("BLOCK", [16, 32, 64, 128, 256])
    warps, stages = trial.suggest_int("num_warps", 1, 8), trial.suggest_float("scale", 0.0, 2.0, step=0.5)
    if block == 256 and warps < 3:
        raise optuna.TrialPruned
    return 10.0 + abs(block - 64) / 16 + abs(warps - 5) + 4 * abs(stages - 1.5)


@pytest.mark.parametrize("direction", ["minimize", "maximize"])
def test_a_study_of_the_users_own(direction):
    study = optuna.create_study(direction=direction, sampler=SurrogateSampler(seed=1))
    study.optimize(lambda t: time_of(t) if direction == "minimize" else 1000.0 / time_of(t), n_trials=40)
    params = [tuple(sorted(t.params.items())) for t in study.trials]
    assert len(set(params)) >= 39  # the first one is drawn by another sampler
    best = study.best_value if direction == "minimize" else 1000.0 / study.best_value
    assert best <= 11.0  # 5 of 200 configs


def test_a_continuous_parameter_is_refused():
    study = optuna.create_study(sampler=SurrogateSampler())
    with pytest.raises(SpaceError, match="'x'.*step"):
        study.optimize(lambda t: 1.0 + t.suggest_float("x", 0.0, 1.0), n_trials=3)
