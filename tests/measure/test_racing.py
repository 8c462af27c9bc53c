"""Racing over shapes: what the shapes so far say of a candidate, with and without enough of them for the test."""

import pytest

from kernelsearch.measure.timing import racing


def times(*us):
    return {f"timed:{i}": t for i, t in enumerate(us)}


RIVAL = times(*[10.0] * 8)


def test_four_slower_shapes_are_enough_three_never():
    assert not racing.is_losing(times(11.0, 12.0, 13.0), RIVAL) and not racing.is_losing({}, RIVAL)
    assert racing.is_losing(times(11.0, 12.0, 13.0, 14.0), RIVAL)


def test_one_fast_shape_among_slow_ones_keeps_a_candidate_alive_for_a_while():
    assert not racing.is_losing(times(2.0, 11.0, 11.0, 11.0), RIVAL)  # ahead in the mean
    assert not racing.is_losing(times(9.0, 10.5, 12.0, 10.2), RIVAL)
    assert racing.is_losing(times(9.9, 11.0, 12.0, 13.0, 14.0, 15.0), RIVAL)


def test_equal_or_faster_never_loses_and_unknown_shapes_say_nothing():
    assert not racing.is_losing(times(*[10.0] * 7), RIVAL) and not racing.is_losing(times(*[9.0] * 7), RIVAL)
    assert not racing.is_losing(times(*[99.0] * 7), {}) and not racing.is_losing(
        times(*[99.0] * 7), times(1.0, 1.0, 1.0)
    )


def test_it_is_optunas_pruner():
    """The same decisions as optuna.pruners.WilcoxonPruner, whose best trial has the rival's times."""
    import math
    import random
    import warnings

    import optuna

    rng = random.Random(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        pruner = optuna.pruners.WilcoxonPruner(p_threshold=racing.P, n_startup_steps=racing.LEAST)
        for _ in range(40):
            ratios = [rng.gauss(0.05, 0.1) for _ in range(rng.randint(4, 8))]
            study = optuna.create_study(pruner=pruner)
            study.add_trial(optuna.trial.create_trial(value=0.0, intermediate_values=dict.fromkeys(range(8), 0.0)))
            running = optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING, intermediate_values=dict(enumerate(ratios))
            )
            ours = racing.is_losing(times(*(10.0 * math.exp(r) for r in ratios)), RIVAL)
            assert ours == pruner.prune(study, running), ratios


@pytest.mark.parametrize(("shapes", "hopeless"), [(1, True), (3, True), (4, False), (8, False)])
def test_a_shape_that_takes_far_longer_ends_a_candidate_only_where_the_test_cannot(shapes, hopeless):
    assert racing.is_hopeless(times(21.0), RIVAL, shapes) is hopeless
    assert not racing.is_hopeless(times(19.0), RIVAL, shapes)


def test_faster_is_the_geometric_mean_over_all_of_the_rivals_shapes():
    assert racing.is_faster(times(5.0, 19.0), times(10.0, 10.0))
    assert not racing.is_faster(times(5.0, 21.0), times(10.0, 10.0))
    assert not racing.is_faster(times(10.0, 10.0), times(10.0, 10.0))
    assert not racing.is_faster(times(5.0), times(10.0, 10.0))
