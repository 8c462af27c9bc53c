"""The tuner of one kernel: its configs in flight and measured, and the sampler that suggests the next one.

For every sampler, no config is tried twice, none that is known to be impossible, and the nearest free one where a
sampler suggests such a config.
"""

from __future__ import annotations

import itertools
import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernelsearch.core.errors import StrategyError
from kernelsearch.core.types import SAMPLER, Config, Value, config_key
from kernelsearch.kernel.space import Space, is_number
from kernelsearch.tune.fixed import FixedNames
from kernelsearch.tune.idle import IdleNames

if TYPE_CHECKING:
    from kernelsearch.tune.block_models import BlockModels
    from kernelsearch.tune.optuna_studies import OptunaStudy
    from kernelsearch.tune.surrogate import Scores, Surrogate

TPE, STARTUP = "tpe", 6
"""Optuna's sampler, and how many configs have a score before it is used; until then the draw is uniform."""
SAMPLERS = (SAMPLER, TPE, "random", "neighbour")

DRAWS = 64
"""Uniform draws before one of the untried configs nearest to the start is taken instead."""
ENUMERATED = 10_000
"""The configs nearest to the start that are looked at for that."""


@dataclass
class Tuner:
    """Chooses configs of one space.

    start is the first config, {} for none in particular; inherited says that it is the best config of another kernel,
    near which the default sampler looks while it knows little. possible says whether a config may be tried; listed are
    all possible configs, where they are known. first are configs that the default sampler and `neighbour` give before
    any of their own; estimates are configs with estimated times, which the default sampler uses as far as measured
    times confirm them. asked and told are by `config_key`, in the order of asking and telling. at_shapes has the best
    score and its config at each of several shapes.
    blocks has a model for each group of names that decide times of their own, where there are several; they are used
    once it is known what a function took, and do without estimates.
    A config that differs from one that was asked in idle names alone is not free, nor one in which a fixed name has
    another value.
    """

    space: Space
    start: dict[str, Value]
    possible: Callable[[Config], bool]
    listed: Sequence[Config] | None = None
    inherited: bool = False
    first: Sequence[dict[str, Value]] = ()
    estimates: Sequence[tuple[Config, float | Sequence[float]]] = ()
    asked: dict[str, None] = field(default_factory=dict)
    told: dict[str, Scores] = field(default_factory=dict)
    best: tuple[float, dict[str, Value]] | None = None
    at_shapes: list[tuple[float, dict[str, Value]]] = field(default_factory=list)
    idle: IdleNames = field(default_factory=lambda: IdleNames())
    fixed: FixedNames = field(default_factory=lambda: FixedNames())
    blocks: BlockModels | None = None
    used_up: bool = False
    _surrogate: Surrogate | None = None
    _reduced: set[str] = field(default_factory=set)
    _reduced_by: set[str] = field(default_factory=set)
    _study: OptunaStudy | None = None

    def ask(self, rng: random.Random, sampler: str = SAMPLER) -> dict[str, Value] | None:
        """An untried, possible config, now reserved; None when the space is used up. Raises StrategyError."""
        if sampler not in SAMPLERS:
            raise StrategyError(f"a sampler is one of {', '.join(SAMPLERS)}, not {sampler!r}")
        return None if self.used_up else self.take(self._suggest(rng, sampler))

    def take(self, config: dict[str, Value]) -> dict[str, Value] | None:
        """The config if it is free, else the nearest that is, now reserved; None when the space is used up."""
        free: dict[str, Value] | None = config
        if not self._is_free(config):
            free = next((c for c in self._walk_outward(config) if self._is_free(c)), None)
            self.used_up = free is None
        if free is not None:
            self.reserve(free)
        return free

    def reserve(self, config: Config) -> bool:
        """Excludes a config from later asks; False if it was asked or reserved before."""
        key = _intern_key(config)
        if key in self.asked:
            return False
        self.asked[key] = None
        self._reduced.add(self.idle.reduce(config))
        for model in (self.blocks, *self._existing_models()):
            if model is not None:
                model.begin(config)
        return True

    def tell(
        self,
        config: Config,
        score: float | None,
        work: str = "",
        wrong: bool = False,
        parts: Mapping[str, float] | None = None,
        by_shape: Sequence[float] = (),
    ) -> None:
        """The score of a config, less is better; None for a failed one, wrong if its results were.

        work is the digest of its machine code, parts what each function took, by_shape what it took at each of several
        shapes, over the seed's time there.
        """
        self.idle.tell(config, work)
        if wrong or score is not None:
            self.fixed.tell(config, not wrong)
        self.used_up = False  # what is free may have changed
        self.reserve(config)
        scores: Scores = score if score is None or len(by_shape) < 2 else tuple(by_shape)
        self.told[_intern_key(config)] = scores
        if score is not None and (self.best is None or score < self.best[0]):
            self.best = (score, dict(config))
        if isinstance(scores, tuple):
            before = self.at_shapes or [(math.inf, {})] * len(scores)
            both = zip(before, scores, strict=True)
            self.at_shapes = [(s, dict(config)) if s < best[0] else best for best, s in both]
        if self.blocks is not None:
            self.blocks.end(config, score, parts or {})
        for model in self._existing_models():
            model.end(config, scores)

    def forget(self) -> None:
        """Drops the models to save memory; they are made again when needed. Those of blocks stay: others have them."""
        self._surrogate = self._study = None

    # ------------------------------------------------------------ suggestions

    def _suggest(self, rng: random.Random, sampler: str) -> dict[str, Value]:
        if sampler == "random":
            return self._draw_uniform(rng)
        if not self.asked and self.start:
            return self.start
        if self.space.size == 1:
            return self._complete(next(self.space.iterate_configs()))
        if sampler == TPE:
            if len(self.told) < STARTUP:
                return self._draw_uniform(rng)
            return self._complete(self._get_study().suggest(rng.getrandbits(32)))
        foremost = next((c for c in self.first if self._is_free(c)), None)
        if foremost is not None:
            return foremost
        if self.blocks is not None and self.blocks.is_told:
            point = self.blocks.suggest(lambda c: self._is_free(self._complete(c)), rng)
            return self._draw_uniform(rng) if point is None else self._complete(point)
        if sampler == "neighbour" or (self.inherited and not self._get_surrogate().ready):
            near = self._pick_neighbour(rng)
            if near is not None:
                return near
        point = self._get_surrogate().suggest(lambda c: self._is_free(self._complete(c)), rng)
        return self._draw_uniform(rng) if point is None else self._complete(point)

    def list_neighbours(self, centre: Config | None = None) -> list[dict[str, Value]]:
        """The free configs one step from a config, else from the best one."""
        centre = centre or (self.best[1] if self.best else self.start)
        return [c for c in self.space.iterate_neighbours(centre) if self._is_free(c)]

    def _pick_neighbour(self, rng: random.Random) -> dict[str, Value] | None:
        """A free neighbour of the best config, of several shapes of any one's: the most promising one, or any while
        little is known.
        """
        around = self.list_neighbours(rng.choice(self.at_shapes)[1] if self.at_shapes else None)
        if len(around) < 2:
            return around[0] if around else None
        if self._get_surrogate().ready:
            return self._complete(self._get_surrogate().pick_best(around, self._is_free) or around[0])
        return rng.choice(around)

    def draw(self, count: int, rng: random.Random) -> list[dict[str, Value]]:
        """Up to count different free configs, drawn uniformly; none of them is reserved."""
        configs: dict[str, dict[str, Value]] = {}
        for _ in range(8 * count):
            config = self._draw_uniform(rng)
            configs.setdefault(config_key(config), config)
            if len(configs) == count:
                break
        return list(configs.values())

    def _draw_uniform(self, rng: random.Random) -> dict[str, Value]:
        for _ in range(DRAWS):
            point = rng.choice(self.listed) if self.listed else {n: rng.choice(v) for n, v in self.space.values.items()}
            config = self._complete(point)
            if self._is_free(config):
                return config
        nearest = itertools.islice(self._walk_outward(self.start), ENUMERATED)
        untried = [c for c in nearest if self._is_free(c)]
        return rng.choice(untried) if untried else self.start

    def _walk_outward(self, config: dict[str, Value]) -> Iterator[dict[str, Value]]:
        """All configs, nearest first."""
        if self.listed is None:
            return map(self._complete, self.space.iterate_outward(config))
        return iter(sorted(map(self._complete, self.listed), key=lambda c: _count_steps(self.space, config, c)))

    def _complete(self, point: Config) -> dict[str, Value]:
        """A point of the space with the values that the start fixes for names outside it."""
        return {**self.start, **point}

    def _is_free(self, config: Config) -> bool:
        if config_key(config) in self.asked or not self.possible(config) or not self.fixed.allow(config):
            return False
        idle = set(self.idle)
        if not idle:
            return True
        if idle != self._reduced_by:
            self._reduced_by, self._reduced = idle, {self.idle.reduce(json.loads(key)) for key in self.asked}
        return self.idle.reduce(config) not in self._reduced

    # ------------------------------------------------------------ models

    def _existing_models(self) -> list[Surrogate | OptunaStudy]:
        return [model for model in (self._surrogate, self._study) if model is not None]

    def _get_surrogate(self) -> Surrogate:
        if self._surrogate is None:
            from kernelsearch.tune.surrogate import Surrogate

            self._surrogate = self._replay(Surrogate(self.space, self.listed, estimates=self.estimates))
        return self._surrogate

    def _get_study(self) -> OptunaStudy:
        if self._study is None:
            from kernelsearch.tune.optuna_studies import OptunaStudy

            self._study = self._replay(OptunaStudy(self.space))
        return self._study

    def _replay(self, model: Any) -> Any:
        """The model, after it was given everything that happened so far."""
        for key in self.asked:
            model.begin(json.loads(key))
        for key, score in self.told.items():
            model.end(json.loads(key), score)
        return model


def _intern_key(config: Config) -> str:
    """The config's key as one shared object: a long run holds thousands of them."""
    return sys.intern(config_key(config))


def _count_steps(space: Space, one: Config, other: Config) -> float:
    """The number of `Space.iterate_neighbours` steps between two configs; a value outside the space is one from all."""
    total = 0.0
    for name, values in space.values.items():
        a, b = one.get(name), other[name]
        if a == b and isinstance(a, bool) == isinstance(b, bool):
            continue
        ordered = all(map(is_number, values)) and a in values
        total += abs(values.index(a) - values.index(b)) if ordered else 1.0
    return total
