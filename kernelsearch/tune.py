"""Numbers: one Optuna study per kernel chooses configs, never one twice and none that is known to be impossible.

A tuner's state is a function of what it was asked and told, in that order; its randomness comes from
(seed, trial number). A search that asks and tells the same is the same search. Studies live in memory
and are made when the first suggestion needs them: what is kept is in the record.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelsearch.source import Kernel
from kernelsearch.space import Predicate, Space, possible, present
from kernelsearch.types import Config, TaskFacts, Trial, Value, config_key

if TYPE_CHECKING:
    import optuna

STARTUP = 6
"""Told trials of a kernel before TPE has something to go by; until then the draw is uniform."""

FAILED = 1e6
"""What Optuna is told for a rejected config. TPE ignores failed trials, so that it would return to the
same bad region; a value worse than any real one puts them among the trials that it moves away from."""

DRAWS = 64
"""Uniform draws before the untried configs are enumerated instead."""

SAMPLERS = ("tpe", "random", "neighbour")


class Tuners:
    """Chooses configs for every kernel of a run; asks in flight are known to it."""

    def __init__(self, seed: int = 0, possible: Predicate = possible) -> None:
        self._seed = seed
        self._possible = possible
        self._tuners: dict[str, _Tuner] = {}

    def add(self, kernel: Kernel, space: Mapping[str, tuple[Value, ...]], start: Config) -> None:
        """Makes a kernel known, with its space and the config where tuning starts; a known one stays as it is."""
        if kernel.digest not in self._tuners:
            self._tuners[kernel.digest] = _Tuner(kernel, Space(space), dict(start), self._possible)

    def __contains__(self, digest: str) -> bool:
        return digest in self._tuners

    def space(self, digest: str) -> Space:
        return self._tuners[digest].space

    def kernel(self, digest: str) -> Kernel:
        return self._tuners[digest].kernel

    def best(self, digest: str) -> Config:
        """The kernel's best config told so far, or where its tuning starts."""
        tuner = self._tuners[digest]
        return tuner.best[1] if tuner.best else tuner.start

    def ask(self, digest: str, number: int, sampler: str = "tpe") -> Config | None:
        """An untried, possible config for the kernel, now reserved; None when its space is used up.

        `tpe` gives the kernel's own start first; `random` is uniform among untried configs; `neighbour`
        is one step from the best config, or `tpe` where all of those were tried.
        """
        rng = random.Random(f"{self._seed}/{number}/tuner")
        return self._tuners[digest].ask(rng, sampler)

    def take(self, digest: str, config: Config) -> Config | None:
        """The explicit config if untried and possible, else the nearest that is, now reserved; None if none is."""
        return self._tuners[digest].take(dict(config))

    def reserve(self, digest: str, config: Config) -> bool:
        """Takes an explicit config out of what can be asked; False if it was asked or reserved before."""
        return self._tuners[digest].reserve(config)

    def tell(self, trial: Trial) -> None:
        self._tuners[trial.kernel].tell(trial.config, trial.score)


@dataclass
class _Tuner:
    """The configs of one kernel: asked, told, and the Optuna study over them once it is needed."""

    kernel: Kernel
    space: Space
    start: dict[str, Value]
    possible: Predicate
    asked: dict[str, dict[str, Value]] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)
    best: tuple[float, dict[str, Value]] | None = None
    used_up: bool = False
    model: _Model | None = None

    def ask(self, rng: random.Random, sampler: str) -> dict[str, Value] | None:
        if sampler not in SAMPLERS:
            raise ValueError(f"a sampler is one of {', '.join(SAMPLERS)}, not {sampler!r}")
        if self.used_up:
            return None
        return self.take(self._wanted(rng, sampler))

    def take(self, config: dict[str, Value]) -> dict[str, Value] | None:
        if not self._free(config):
            config = next((c for c in map(self._full, self.space.outward(config)) if self._free(c)), None)
            self.used_up = config is None
        if config is not None:
            self.reserve(config)
        return config

    def reserve(self, config: Config) -> bool:
        key = config_key(config)
        if key in self.asked:
            return False
        self.asked[key] = dict(config)
        if self.model:
            self.model.begin(config)
        return True

    def tell(self, config: Config, score: float | None) -> None:
        self.reserve(config)
        value = FAILED if score is None else score
        self.told[config_key(config)] = value
        if score is not None and (self.best is None or score < self.best[0]):
            self.best = (score, dict(config))
        if self.model:
            self.model.end(config, value)

    def _wanted(self, rng: random.Random, sampler: str) -> dict[str, Value]:
        if sampler == "random":
            return self._uniform(rng)
        if not self.asked:
            return self.start
        if sampler == "neighbour":
            around = [c for c in self.space.neighbours(self.best[1] if self.best else self.start) if self._free(c)]
            if around:
                return rng.choice(around)
        if len(self.told) < STARTUP or self.space.size == 1:
            return self._uniform(rng)
        return self._full(self._study().suggest(rng.getrandbits(32)))

    def _uniform(self, rng: random.Random) -> dict[str, Value]:
        for _ in range(DRAWS):
            config = self._full({name: rng.choice(values) for name, values in self.space.values.items()})
            if self._free(config):
                return config
        rest = [c for c in map(self._full, self.space.configs()) if self._free(c)]
        return rng.choice(rest) if rest else self.start

    def _study(self) -> _Model:
        if self.model is None:
            self.model = _Model(self.space)
            for key, config in self.asked.items():
                self.model.begin(config)
                if key in self.told:
                    self.model.end(config, self.told[key])
        return self.model

    def _full(self, point: Config) -> dict[str, Value]:
        """A point of the space with the values that the start fixes for names outside it."""
        return {**self.start, **point}

    def _free(self, config: Config) -> bool:
        return config_key(config) not in self.asked and self.possible(self.kernel, config)


class _Model:
    """Optuna's multivariate TPE over the indices of a space's values, all categorical."""

    def __init__(self, space: Space) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        self._varied = {name: values for name, values in space.values.items() if len(values) > 1}
        self._axes = {
            name: optuna.distributions.CategoricalDistribution(range(len(values)))
            for name, values in self._varied.items()
        }
        self._study = optuna.create_study(direction="minimize")
        self._running: dict[str, int] = {}

    def suggest(self, seed: int) -> dict[str, Value]:
        """A point of the space. The suggestion is withdrawn: whoever uses it says so with `begin`."""
        import optuna

        self._study.sampler = _sampler(seed, self._axes)
        trial = self._study.ask(self._axes)
        self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        chosen = {name: values[trial.params[name]] for name, values in self._varied.items()}
        return {name: chosen.get(name, values[0]) for name, values in self._space.values.items()}

    def begin(self, config: Config) -> None:
        """A config is being evaluated; one from outside the space is not Optuna's business."""
        if config in self._space:
            indices = {name: values.index(config[name]) for name, values in self._varied.items()}
            self._study.enqueue_trial(indices)
            self._running[config_key(config)] = self._study.ask(self._axes).number

    def end(self, config: Config, value: float) -> None:
        number = self._running.pop(config_key(config), None)
        if number is not None:
            self._study.tell(number, value)


def _sampler(seed: int, axes: dict[str, optuna.distributions.BaseDistribution]) -> optuna.samplers.TPESampler:
    import optuna

    class KnownAxes(optuna.samplers.TPESampler):
        """TPE that is told its axes: inferring them from all trials is most of the cost of an ask."""

        def infer_relative_search_space(self, study, trial):
            return axes

    return KnownAxes(seed=seed, multivariate=True, constant_liar=True, n_startup_trials=0)


def space_of(kernel: Kernel, inherited: Mapping[str, tuple[Value, ...]]) -> dict[str, tuple[Value, ...]]:
    """A kernel's space: its own SPACE over what it inherits from its parent or task, where the names still exist."""
    kept = {name: values for name, values in inherited.items() if present(name, kernel)}
    return {**kept, **kernel.space}


def start_of(
    kernel: Kernel, inherited: Config, space: Mapping[str, tuple[Value, ...]], base: Config | None = None
) -> dict[str, Value]:
    """A kernel's first config: its own CONFIG over its parent's best, where names still exist, else first values.

    base is the config that the rewrite was written over (the parent's CONFIG, else the task's): a value that
    only repeats it is not the rewrite's own, and what tuning has found since goes before it. An inherited
    value that the kernel's space does not have gives way to the nearest that it has.
    """
    spoken = {*kernel.config, *kernel.space}
    kept = {name: value for name, value in inherited.items() if name in spoken or present(name, kernel)}
    own = {name: value for name, value in kernel.config.items() if base is None or base.get(name) != value}
    start = {**{name: values[0] for name, values in space.items()}, **kernel.config, **kept}
    return {**{name: nearest(space.get(name, ()), value) for name, value in start.items()}, **own}


def nearest(values: tuple[Value, ...], value: Value) -> Value:
    """The value itself if values has it or is empty; else the number nearest by ratio, else the first."""
    if not values or value in values:
        return value
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool) and v > 0]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 and numbers:
        return min(numbers, key=lambda v: max(v / value, value / v))
    return values[0]


def seed_tuners(task: TaskFacts, kernel: Kernel, seed: int = 0, possible: Predicate = possible) -> Tuners:
    """Tuners that know the task's seed kernel, with the task's space and config."""
    tuners = Tuners(seed, possible)
    tuners.add(kernel, dict(task.space), {**{n: v[0] for n, v in task.space.items()}, **task.config})
    return tuners
