"""The default sampler's parts: axes that keep what values are, a process that interpolates, suggestions that repeat."""

import random

import numpy as np
import pytest

from kernelsearch.core.types import config_key
from kernelsearch.kernel.space import Space
from kernelsearch.tune.axes import Axes
from kernelsearch.tune.gaussian_process import GaussianProcess
from kernelsearch.tune.surrogate import AROUND, KEPT_BEST, KEPT_LAST, SAMPLED, Surrogate, log_expected_improvement

MIXED = {"b": (64, 16, 32), "f": (False, True), "s": ("x", "y", "z"), "one": (7,), "mixed": (None, 1, True)}


def test_points_and_configs_are_the_same_things():
    axes, space = Axes(Space(MIXED)), Space(MIXED)
    for config in space.iterate_configs():
        assert config_key(axes.config_at(axes.point_of(config))) == config_key(config)
    assert len(axes.list_points()) == space.size == len({tuple(p) for p in axes.list_points().tolist()})
    assert axes.point_of({**next(space.iterate_configs()), "b": 48}) is None and axes.point_of({"b": 16}) is None


def test_numbers_are_ordered_by_size_and_others_are_all_equally_far():
    axes = {a.name: a for a in Axes(Space(MIXED)).axes}
    ranks = dict(zip(axes["b"].values, axes["b"].order, strict=True))
    assert ranks == {16: 0, 32: 1, 64: 2}
    assert axes["b"].distances[0].tolist() == [0.0, 0.5, 1.0]
    for name in ("f", "s", "mixed"):
        assert (axes[name].distances == 1.0 - np.eye(len(axes[name].values))).all()


def test_neighbours_are_one_step_away():
    axes = Axes(Space(MIXED))
    near = [
        axes.config_at(p)
        for p in axes.iterate_neighbours(np.array(axes.point_of({"b": 16, "f": True, "s": "y", "mixed": 1, "one": 7})))
    ]
    assert sorted(c["b"] for c in near if c["b"] != 16) == [32]
    assert len(near) == 1 + 1 + 2 + 2


def test_a_process_interpolates_and_is_sure_where_it_was_told():
    axes = Axes(Space({"a": tuple(range(9)), "b": tuple(range(9))}))
    points = axes.list_points()
    values = (np.sin(points[:, 0] / 3.0) + 0.1 * points[:, 1] ** 1.5)[:, None]
    told = np.random.default_rng(0).choice(len(points), 30, replace=False)
    process = GaussianProcess([a.distances for a in axes.axes])
    process.learn(points[told], values[told])
    process.fit(points[told], values[told])
    mean, deviation = process.predict(points)
    assert np.abs(mean[told] - values[told]).max() < 0.05
    rest = np.setdiff1d(np.arange(len(points)), told)
    assert np.abs(mean[rest] - values[rest]).mean() < 0.1 * values.std()
    assert deviation[told].max() < deviation[rest].mean()


def test_the_gradient_of_the_loss_is_its_slope():
    axes = Axes(Space({"a": tuple(range(5)), "b": tuple(range(4)), "c": ("x", "y")}))
    chance = np.random.default_rng(1)
    points, process = axes.draw(15, chance), GaussianProcess([a.distances for a in axes.axes])
    told, at = chance.normal(size=(15, 2)), process.mean + 0.3 * chance.normal(size=6)
    _, gradient = process._loss(at, points, told)
    for i in range(6):
        step = np.zeros(6)
        step[i] = 1e-5
        slope = (process._loss(at + step, points, told)[0] - process._loss(at - step, points, told)[0]) / 2e-5
        assert gradient[i] == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_expected_improvement_is_what_draws_say_and_stays_ordered_far_below():
    draws = np.random.default_rng(2).normal(1.0, 0.5, 400_000)
    expected = np.maximum(0.8 - draws, 0.0).mean()
    found = log_expected_improvement(np.array([1.0]), np.array([0.5]), 0.8)
    assert np.exp(found[0]) == pytest.approx(expected, rel=0.02)
    far = log_expected_improvement(np.linspace(1, 100, 200), np.full(200, 0.5), 0.0)
    assert np.isfinite(far).all() and (np.diff(far) < 0).all()


LARGE = Space(
    {"a": tuple(range(10)), "b": tuple(range(10)), "c": tuple(range(10)), "d": tuple(range(10)), "e": ("x", "y")}
)


def bowl(config):
    return 1.0 + sum((config[n] - 6) ** 2 for n in "abcd") + 3 * (config["e"] == "x")


@pytest.mark.parametrize("size", ["small", "large"])
def test_suggestions_are_a_function_of_what_began_and_ended(size):
    space = LARGE if size == "large" else Space({"a": tuple(range(12)), "b": tuple(range(12))})
    cost = bowl if size == "large" else lambda c: 1.0 + (c["a"] - 4) ** 2 + c["b"]
    asked, one = [], Surrogate(space)
    for number in range(30):
        config = one.suggest(lambda c: c not in asked, random.Random(number))
        asked.append(config)
        one.begin(config)
        one.end(config, None if config["a"] == 0 else cost(config))
    other = Surrogate(space)
    for config in asked:  # never asked anything
        other.begin(config)
        other.end(config, None if config["a"] == 0 else cost(config))
    again = [s.suggest(lambda c: c not in asked, random.Random(99)) for s in (one, other)]
    assert again[0] == again[1]
    assert min(cost(c) for c in asked) < 6


def test_a_suggestion_costs_the_same_at_any_length(monkeypatch):
    """However many configs have ended, the process is fitted once, to few of them, and compares few candidates."""
    model, chance, sizes = Surrogate(LARGE), random.Random(0), []
    for config in chance.sample(list(LARGE.iterate_configs()), 5000):
        model.begin(config)
        model.end(config, bowl(config))
    model.suggest(lambda c: True, chance)
    for name in ("learn", "fit", "predict"):
        method = getattr(GaussianProcess, name)
        record = lambda *args, method=method, name=name: (sizes.append((name, len(args[1]))), method(*args))[1]  # noqa: E731
        monkeypatch.setattr(GaussianProcess, name, record)
    assert model.suggest(lambda c: True, chance)
    assert [name for name, _ in sizes] == ["fit", "predict"]
    assert sizes[0][1] == KEPT_BEST + KEPT_LAST and sizes[1][1] <= SAMPLED + 100 * AROUND


def test_what_is_in_flight_is_believed_and_not_suggested():
    model, asked = Surrogate(LARGE), []
    for number in range(40):
        config = model.suggest(lambda c: True, random.Random(number))
        assert config not in asked
        asked.append(config)
        model.begin(config)
        if number >= 8:
            model.end(asked[number - 8], bowl(asked[number - 8]))
    assert min(map(bowl, asked)) < 12


def test_of_several_shapes_the_best_of_each_is_sought():
    """Each of three shapes has its own best config, far from the others'; a mean over them would know a fourth."""
    space = Space({"a": tuple(range(16)), "b": tuple(range(16))})
    places = [(1, 14), (8, 2), (14, 13)]

    def take(config):
        return tuple(1.0 + 0.05 * ((config["a"] - a) ** 2 + (config["b"] - b) ** 2) for a, b in places)

    for seed in range(3):
        model, asked = Surrogate(space), []
        for number in range(36):
            config = model.suggest(lambda c, asked=asked: c not in asked, random.Random(100 * seed + number))
            asked.append(config)
            model.begin(config)
            model.end(config, take(config))
        assert max(map(min, zip(*map(take, asked), strict=True))) < 1.06


def test_equal_shapes_are_as_one():
    space, found = Space({"a": tuple(range(12)), "b": tuple(range(12))}), []
    for copies in ((lambda x: x), (lambda x: (x, x, x))):
        model, asked = Surrogate(space), []
        for number in range(24):
            config = model.suggest(lambda c, asked=asked: c not in asked, random.Random(number))
            asked.append(config)
            model.begin(config)
            model.end(config, copies(1.0 + (config["a"] - 4) ** 2 + config["b"]))
        found.append(asked)
    assert found[0] == found[1]


def test_all_failed_is_no_reason_to_stop():
    model = Surrogate(LARGE)
    for number in range(20):
        config = model.suggest(lambda c: True, random.Random(number))
        model.begin(config)
        model.end(config, None)
    assert model.suggest(lambda c: True, random.Random(99)) is not None
