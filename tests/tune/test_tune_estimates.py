"""Estimates of some configs: believed while nothing is measured, and as far as what is measured bears them out."""

import random

import numpy as np
import pytest

from kernelsearch.kernel.space import Space
from kernelsearch.tune.axes import Axes
from kernelsearch.tune.estimates import TRUST, Estimates
from kernelsearch.tune.tuner import Tuner

SPACE = Space({"a": tuple(range(10)), "b": (1, 2, 4, 8)})
CONFIGS = list(SPACE.iterate_configs())


def true_us(config):
    return 10.0 * 1.2 ** (abs(config["a"] - 7) + abs(config["b"].bit_length() - 3))


def tuner(estimates, start={}):  # noqa: B006
    made = Tuner(SPACE, dict(start), lambda config: True)
    made.estimates = tuple(estimates)
    return made


def asked(made, count, fails=0):
    """So many configs, one at a time; the first `fails` of them fail."""
    found = []
    for number in range(count):
        found.append(made.ask(random.Random(number)))
        made.tell(found[-1], None if number < fails else true_us(found[-1]))
    return found


def test_estimates_say_something_of_configs_that_have_none():
    axes = Axes(SPACE)
    some = random.Random(0).sample(CONFIGS, 20)
    estimates = Estimates(
        [a.distances for a in axes.axes], np.array([axes.point_of(c) for c in some]), [true_us(c) for c in some]
    )
    mean, unsure = estimates.predict(axes.list_points())
    true = np.log([true_us(axes.config_at(p)) for p in axes.list_points()])
    assert np.corrcoef(mean[:, 0], true)[0, 1] > 0.9
    known = [tuple(p) in {axes.point_of(c) for c in some} for p in axes.list_points().tolist()]
    assert unsure[known].max() < unsure[~np.array(known)].mean()


@pytest.mark.parametrize(("slope", "low", "high"), [(1.0, 0.9, 1.1), (0.0, 0.0, 0.1), (-1.0, 0.0, 0.0)])
def test_trust_follows_what_is_measured(slope, low, high):
    axes, rng = Axes(SPACE), np.random.default_rng(0)
    estimates = Estimates(
        [a.distances for a in axes.axes], axes.list_points(), [true_us(axes.config_at(p)) for p in axes.list_points()]
    )
    told = np.log([[true_us(axes.config_at(p))] for p in axes.list_points()])
    assert estimates.fit_trust(np.zeros((0, 1)), np.zeros((0, 1))) == (TRUST, estimates.apart)
    trust, apart = estimates.fit_trust(told, slope * told + 5.0 + 0.01 * rng.normal(size=told.shape))
    assert low <= trust <= high and 0.0 < apart < 1.5 * told.std()


def test_good_estimates_find_the_best_at_once_and_wrong_ones_only_delay_it():
    some, best = random.Random(1).sample(CONFIGS, 16), min(map(true_us, CONFIGS))

    def needed(estimates):
        found = asked(tuner(estimates), 40)
        return next(n for n, c in enumerate(found, 1) if true_us(c) == best)

    assert needed([(c, true_us(c)) for c in some]) <= 6
    assert needed([(c, 100.0 / true_us(c)) for c in some]) < 40


def test_there_is_something_to_go_by_while_everything_fails():
    found = asked(tuner([(c, true_us(c)) for c in CONFIGS[::3]]), 30, fails=12)
    assert len({tuple(c.items()) for c in found}) == 30


def test_a_forgotten_model_with_estimates_suggests_the_same():
    def story(forgetting):
        made, found = tuner([(c, true_us(c)) for c in CONFIGS[::3]], CONFIGS[5]), []
        for number in range(24):
            if forgetting and number % 3 == 0:
                made.forget()
            found.append(made.ask(random.Random(number), "neighbour" if number % 4 == 0 else "surrogate"))
            if number >= 3:  # three are in flight all the time
                made.tell(found[number - 3], true_us(found[number - 3]))
        return found

    assert story(True) == story(False)


def test_estimates_of_a_large_space_serve_before_anything_has_ended():
    space = Space({name: tuple(range(1, 9)) for name in "abcd"})  # too large to compare as a whole
    some = random.Random(0).sample(list(space.iterate_configs()), 20)
    made = Tuner(space, {}, lambda config: True)
    made.estimates = tuple((c, float(sum(c.values()))) for c in some)
    found = [made.ask(random.Random(number)) for number in range(5)]
    assert len({tuple(c.items()) for c in found}) == 5
