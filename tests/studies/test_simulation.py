"""Replaying a space: unique evaluations, the same for the same seed, and scores that mean what they say."""

import math
import random
import statistics

import pytest

from kernelsearch.core.errors import StrategyError
from kernelsearch.core.types import Word
from kernelsearch.tune import SAMPLERS
from recorded import score, simulation
from recorded.simulation import RecordedEvaluator, SimulatedRun, simulate
from recorded.space import RecordedSpace, SpaceRow
from recorded_spaces import made

SPACE = made()
FAST = ("surrogate", "random", "neighbour", "random_walk", "best_of_n", "autotune")


@pytest.mark.parametrize("name", FAST)
def test_every_config_once_and_the_best_only_improves(name):
    run = simulate(SPACE, name, 10_000, 3)
    assert len(run.best_us) == len(SPACE.rows)
    assert run.best_us[-1] == SPACE.optimum_us
    known = [us for us in run.best_us if us is not None]
    assert known == sorted(known, reverse=True)


@pytest.mark.parametrize("name", (*SAMPLERS, "random_walk"))
def test_the_same_seed_is_the_same_run(name):
    assert simulate(SPACE, name, 14, 1) == simulate(SPACE, name, 14, 1)
    assert simulate(SPACE, name, 14, 1) != simulate(SPACE, name, 14, 2)


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_the_default_tuner_finds_a_rare_optimum_early(share):
    space = made(share=share)
    needed = [score.count_evaluations(space, simulate(space, "surrogate", 40, seed)) for seed in range(5)]
    assert statistics.median(needed) <= 20  # of 180 configs, or of 18


def test_in_flight_configs_are_not_asked_again_and_cost_little():
    runs = [simulate(SPACE, "surrogate", 48, seed, window=8) for seed in range(3)]
    assert all(len(run.best_us) == 48 for run in runs)
    assert statistics.median(run.best_us[-1] for run in runs) <= 1.02 * SPACE.optimum_us


def test_a_space_of_one_config_and_a_space_without_names_to_vary():
    one = RecordedSpace("t", "d", {}, {"a": (1,)}, (SpaceRow({"a": 1}, 5.0),))
    for name in (*SAMPLERS, "autotune"):
        assert simulate(one, name, 5, 0).best_us == (5.0,)


def test_failures_come_before_the_first_time():
    rows = (SpaceRow({"a": 1}, failure="compile"), SpaceRow({"a": 2}, failure="timeout"), SpaceRow({"a": 3}, 7.0))
    run = simulate(RecordedSpace("t", "d", {}, {"a": (1, 2, 3)}, rows), "autotune", 5, 0)
    assert run.best_us == (None, None, 7.0)


def test_noise_misleads_only_as_far_as_the_samples_go():
    noisy = [simulate(SPACE, "random", 60, seed, noise=True) for seed in range(3)]
    exact = [simulate(SPACE, "random", 60, seed) for seed in range(3)]
    for one, other in zip(noisy, exact, strict=True):
        assert one.best_us[-1] <= 1.01 * other.best_us[-1]


def test_replayed_answers_with_the_words_of_the_contract():
    words = {"compile": Word.COMPILE, "runtime": Word.CRASH, "correctness": Word.WRONG, "timeout": Word.TIMEOUT}
    for row in SPACE.rows:
        outcome = RecordedEvaluator(SPACE).evaluate(None, row.config)
        if row.failure:
            assert outcome.verdict.word is words[row.failure]
        else:
            assert outcome.measurement.times[0].time_us == row.time_us


def test_noise_is_a_function_of_seed_and_config():
    row = next(row for row in SPACE.rows if row.samples_us)
    times = [
        RecordedEvaluator(SPACE, seed).evaluate(None, row.config).measurement.times[0].time_us for seed in (1, 1, 2)
    ]
    assert times[0] == times[1] != times[2]
    assert min(row.samples_us) <= times[2] <= max(row.samples_us)


def test_an_unknown_strategy_names_the_known_ones():
    with pytest.raises(StrategyError, match="unknown strategy 'nope'.*evolve.*samplers: surrogate"):
        simulation.find_strategy("nope")


# ---------------------------------------------------------------- the score


def test_random_search_is_calculated_as_it_is_drawn():
    expected = score.expect_random_search(SPACE, 40)
    worst = max(row.time_us for row in SPACE.rows if row.time_us)
    chance, totals = random.Random(0), [0.0] * 40
    for _ in range(3000):
        best = worst
        for n, row in enumerate(chance.sample(SPACE.rows, 40)):
            best = min(best, row.time_us or worst)
            totals[n] += best / 3000
    assert all(math.isclose(a, b, rel_tol=0.02) for a, b in zip(expected, totals, strict=True))
    assert score.expect_random_search(SPACE, 10_000)[-1] == SPACE.optimum_us


def test_the_score_of_random_search_is_none_and_of_the_optimum_one():
    expected = SimulatedRun(0, tuple(score.expect_random_search(SPACE, 200)))
    assert score.score(SPACE, [expected]) == pytest.approx(0.0)
    assert score.score(SPACE, [SimulatedRun(0, (SPACE.optimum_us,))]) == pytest.approx(1.0)
    assert score.score(SPACE, [SimulatedRun(0, (None,) * 50)]) < 0


def test_evaluations_to_near_the_optimum():
    assert score.count_evaluations(SPACE, SimulatedRun(0, (None, 300.0, 101.9, 100.0))) == 3
    assert score.count_evaluations(SPACE, SimulatedRun(0, (None, 300.0))) == score.NEVER
