"""Tuning: one tuner for each kernel chooses its configs, never one twice and none that is known to be impossible.

A tuner's state is a function of the calls of `ask` and `tell`, in their order; its randomness comes from (seed, trial
number). A search that makes the same calls is the same search. Tuners live in memory only, and their models are fitted
when the first suggestion needs them: the record holds all that a run needs to repeat them.
"""

from __future__ import annotations

import math
import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from kernelsearch.core.timed_shapes import FAR, Points, interpolate_ratios, place_shapes
from kernelsearch.core.types import SAMPLER, Config, TaskFacts, Trial, Value, Word, config_key
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import Predicate, Space, TaskPredicate, functions_of, is_possible
from kernelsearch.tune.block_models import BlockHistory, BlockModels
from kernelsearch.tune.blocks import find_blocks, identify_functions, share_parts
from kernelsearch.tune.fixed import FixedNames
from kernelsearch.tune.idle import IdleNames
from kernelsearch.tune.starts import nearest_value, seed_start_of, space_of, start_of
from kernelsearch.tune.tuner import SAMPLERS, Tuner

__all__ = ["SAMPLERS", "Tuner", "Tuners", "make_seed_tuners", "nearest_value", "seed_start_of", "space_of", "start_of"]

MODELS = 64
"""Kernels whose fitted models stay in memory; another's are fitted again when needed, and suggest the same."""


class Tuners:
    """The tuners of a run, by kernel; points say where the timed shapes lie, if there are several."""

    def __init__(self, seed: int = 0, possible: Predicate = is_possible, points: Points | None = None) -> None:
        self._seed = seed
        self._points = points or {}
        self._best_us: dict[str, float] = {}
        self._possible = possible
        self._tuners: dict[str, Tuner] = {}
        self._kernels: dict[str, Kernel] = {}
        self._recent: OrderedDict[str, None] = OrderedDict()
        self._unit_us: dict[str, float] = {}  # the first times, which parts are shares of
        self._histories: dict[tuple[Any, ...], BlockHistory] = {}

    def add(
        self, kernel: Kernel, space: Mapping[str, tuple[Value, ...]], start: Config, parent: str | None = None
    ) -> None:
        """Makes a kernel known, with its space and the config where tuning starts; a known one stays as it is.

        parent is the digest of the kernel whose best config the start is.
        """
        if kernel.digest not in self._tuners:
            self._kernels[kernel.digest] = kernel
            possible = partial(self._possible, kernel)
            idle = IdleNames(self._tuners[parent].idle if parent else ())
            fixed = FixedNames(self._tuners[parent].fixed if parent else None)
            tuner = Tuner(Space(space), dict(start), possible, inherited=parent is not None, idle=idle, fixed=fixed)
            self._share_blocks(kernel, tuner, parent)
            self._tuners[kernel.digest] = tuner

    def _share_blocks(self, kernel: Kernel, tuner: Tuner, parent: str | None) -> None:
        """Gives a tuner the histories of the functions that are the same in another kernel.

        It starts at their best values, but for a block in which its start is not the parent's best.
        """
        blocks = find_blocks(kernel, tuner.space.values)
        if len(blocks) < 2:
            return
        identities, shared = identify_functions(kernel), {}
        fixed = {n: functions_of(n, kernel) for n in tuner.start if n not in tuner.space.values}
        for block in (b for b in blocks if b.functions):
            values = {n: tuner.space.values[n] for n in block.names}
            own = {n: tuner.start[n] for n, functions in fixed.items() if {*block.functions}.intersection(functions)}
            key = tuple(identities[f] for f in block.functions), repr(values), config_key(own)
            shared[block.names] = self._histories.setdefault(key, BlockHistory(Space(values)))
        tuner.blocks = BlockModels(tuner.space, blocks, tuner.start, tuner.inherited, shared)
        inherited = self.best_config(parent) if parent else {}
        best = tuner.blocks.combine_best()
        for names in (b.names for b in blocks):
            if all(n in inherited and inherited[n] == tuner.start.get(n) for n in names):
                tuner.start.update((n, best[n]) for n in names)

    def __contains__(self, digest: str) -> bool:
        return digest in self._tuners

    def space_by_digest(self, digest: str) -> Space:
        return self._tuners[digest].space

    def kernel_by_digest(self, digest: str) -> Kernel:
        return self._kernels[digest]

    def best_config(self, digest: str) -> Config:
        """The kernel's best config so far, or the one where its tuning starts."""
        tuner = self._tuners[digest]
        return tuner.best[1] if tuner.best else tuner.start

    def ask(self, digest: str, number: int, sampler: str = SAMPLER) -> Config | None:
        """An untried, possible config for the kernel, now reserved; None when its space is used up.

        All samplers but `random` give the kernel's own start first; `random` is uniform among untried configs;
        `neighbour` is one step from the best config, or what the default sampler says where all of those were tried,
        or where several functions are tuned at once.
        """
        self._recent[digest] = None
        self._recent.move_to_end(digest)
        if len(self._recent) > MODELS:
            self._forget(self._tuners[self._recent.popitem(last=False)[0]])
        return self._tuners[digest].ask(random.Random(f"{self._seed}/{number}/tuner"), sampler)

    def _forget(self, tuner: Tuner) -> None:
        tuner.forget()
        recent = (self._tuners[digest].blocks for digest in self._recent)
        used = {id(h) for blocks in recent if blocks is not None for h in blocks.histories}
        for history in tuner.blocks.histories if tuner.blocks is not None else ():
            if id(history) not in used:
                history.forget()

    def draw(self, digest: str, count: int) -> list[dict[str, Value]]:
        """Up to count different untried, possible configs of the kernel, by the run's seed. None is reserved."""
        return self._tuners[digest].draw(count, random.Random(f"{self._seed}/drawn"))

    def add_estimates(self, digest: str, estimates: Sequence[tuple[Config, Sequence[float]]], asked: int) -> None:
        """Gives the default sampler configs of the kernel with estimated times by shape in any unit, best first.

        The first `asked` of them come before any suggestion.
        """
        tuner = self._tuners[digest]
        tuner.estimates, tuner.first = tuple(estimates), [dict(c) for c, _ in estimates[:asked]]
        tuner.forget()

    def list_neighbours(self, digest: str) -> list[dict[str, Value]]:
        """The untried, possible configs one step from the kernel's best one."""
        return self._tuners[digest].list_neighbours()

    def put_first(self, digest: str, config: Config) -> None:
        """The default sampler and `neighbour` give this config of the kernel before any of their own."""
        self._tuners[digest].first = [dict(config)]

    def take(self, digest: str, config: Config) -> Config | None:
        """The explicit config if untried and possible, else the nearest that is, now reserved; None if none is."""
        return self._tuners[digest].take(dict(config))

    def reserve(self, digest: str, config: Config) -> bool:
        """Excludes an explicit config from later asks; False if it was asked or reserved before."""
        return self._tuners[digest].reserve(config)

    def tell(self, trial: Trial) -> None:
        wrong, measurement = trial.outcome.verdict.word in (Word.WRONG, Word.MEMORY), trial.outcome.measurement
        if measurement is not None and not self._unit_us and not measurement.abandoned:
            self._unit_us = measurement.by_shape
        parts, by_shape = share_parts(measurement, self._unit_us), self._complete_times(trial)
        self._tuners[trial.kernel].tell(trial.config, trial.score, trial.outcome.work, wrong, parts, by_shape)

    def _complete_times(self, trial: Trial) -> tuple[float, ...]:
        """The times over the first ones, at every shape: where it was not timed, what the other shapes let expect.

        Where its blocks do not fit, that is FAR from the best.
        """
        measurement = trial.outcome.measurement
        if measurement is None or len(self._points) < 2:
            return ()
        fitting = {*self._points}
        if isinstance(self._possible, TaskPredicate):
            fitting = self._possible.find_shapes(self._kernels[trial.kernel], trial.config)
        for shape, us in measurement.by_shape.items():
            self._best_us[shape] = min(us, self._best_us.get(shape, math.inf))
        known = {s: us / self._best_us[s] for s, us in measurement.by_shape.items() if s in self._points}
        expected = interpolate_ratios(self._points, known)
        ratios = {s: r if s in known or s in fitting else max(r, FAR) for s, r in expected.items()}
        return tuple(r * self._best_us.get(s, 1.0) / self._unit_us.get(s, 1.0) for s, r in ratios.items())


def make_seed_tuners(task: TaskFacts, kernel: Kernel, seed: int = 0, possible: Predicate = is_possible) -> Tuners:
    """Tuners that know the task's seed kernel, with the task's space and config."""
    tuners = Tuners(seed, possible, place_shapes(task.shapes))
    tuners.add(kernel, task.space, seed_start_of(task))
    return tuners
