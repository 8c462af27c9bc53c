"""Tuning several kernels of one launcher at once: each has a model of its own, of its own times.

A call that launches five kernels takes the sum of their times, and a config of it has twenty names: as one space it is
hardly explored in a hundred trials. But a kernel's time depends on its own names alone, and the run worker times each
launch by itself (`blocks.share_parts`). So a block of names has a surrogate that is told what its own kernels took,
and every trial can say something about each of them. Now and then all blocks get their best values at once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence

from kernelsearch.core.types import Config, Value, config_key
from kernelsearch.kernel.space import Space
from kernelsearch.tune.blocks import NameBlock
from kernelsearch.tune.surrogate import Free, Surrogate

WORTH = 0.0005
"""A block leaves its best values for a config whose expected gain is this share of the whole time."""
TOGETHER = 0.01
"""The best values of all blocks are tried together when that should save this share of the best time."""

Parts = Mapping[str, float]
"""What each function took, in any unit."""


class BlockModels:
    """Suggests configs of a space of several blocks; the interface of `Surrogate`. It does without estimates.

    parts has what the functions took by `config_key`, before `end` is called for a config. start has the values of
    names where nothing better is known; known are configs of the kernel's parent with what it took, for functions that
    are the same there. inherited says that the start is the best config of another kernel: a block of which little is
    known then looks near it.
    """

    ready = True

    def __init__(
        self,
        space: Space,
        blocks: Sequence[NameBlock],
        parts: Mapping[str, Parts],
        start: Config,
        known: Iterable[tuple[Config, Parts]] = (),
        inherited: bool = False,
    ) -> None:
        self.blocks = blocks = [b for b in blocks if any(len(space.values[n]) > 1 for n in b.names)]
        self.start, self.inherited, self._parts = start, inherited, parts
        self._spaces = [Space({n: space.values[n] for n in b.names}) for b in blocks]
        self._models = [Surrogate(own) for own in self._spaces]
        self._best: list[tuple[float, Config] | None] = [None] * len(blocks)
        self._right: list[set[str]] = [set() for _ in blocks]
        self._failed: list[Config] = []
        self._tuned = sorted({f for block in blocks for f in block.functions})
        self._least = math.inf  # of what these took together
        for config, took in known:
            for number, block in enumerate(blocks):
                if block.functions and took.keys() >= {*block.functions}:
                    self._models[number].begin(config)
                    self._tell(number, config, sum(took[f] for f in block.functions))

    def begin(self, config: Config) -> None:
        for model in self._models:
            model.begin(config)

    def end(self, config: Config, score: float | None) -> None:
        """A failure is blamed on a block where all the others have been right with their values."""
        parts = self._parts.get(config_key(config), {})
        if score is None and not parts:
            self._failed.append(config)
        for number, block in enumerate(self.blocks):
            us = sum(parts[f] for f in block.functions) if parts.keys() >= {*block.functions} else None
            if us is not None and parts:
                self._tell(number, config, us if block.functions else score)
        if score is not None and parts.keys() >= {*self._tuned}:
            self._least = min(self._least, sum(parts[f] for f in self._tuned) or math.inf)
        doubtful, self._failed = self._failed, []
        for failed in doubtful:
            unknown = [n for n, right in enumerate(self._right) if config_key(self._own(n, failed)) not in right]
            if len(unknown) == 1:
                self._models[unknown[0]].end(failed, None)
            elif unknown:
                self._failed.append(failed)

    def suggest(self, free: Free, rng: random.Random) -> dict[str, Value] | None:
        """The best values of all blocks where that promises a gain, else new values where a block may gain by them."""
        best = self._combine_best()
        if self._expect_together() < (1.0 - TOGETHER) * self._least and free(best):
            return best
        moves: list[tuple[float, dict[str, Value]]] = []
        for number, model in enumerate(self._models):
            own = self._suggest_own(number, best, free, random.Random(rng.getrandbits(64)))
            if own is not None:
                moves.append((model.expect_gain(own) * self._share_of(number), own))
        config = best
        for gain, own in sorted(moves, key=lambda move: -move[0]):
            if (gain > WORTH or config is best) and free({**config, **own}):
                config = {**config, **own}
        return None if config is best else config

    def pick_best(self, around: Iterable[Config], free: Free) -> dict[str, Value] | None:
        """The free one of these configs with the least expected time."""
        configs = [c for c in around if free(c)]
        return dict(min(configs, key=self._expect)) if configs else None

    def _suggest_own(self, number: int, best: Config, free: Free, rng: random.Random) -> dict[str, Value] | None:
        """New values of one block, beside the best ones of the others."""
        model = self._models[number]
        if self.inherited and not model.ready:
            near = (self._own(number, c) for c in self._spaces[number].iterate_neighbours(self._own(number, best)))
            untried = [c for c in near if not model.has_begun(c) and free({**best, **c})]
            if untried:
                return rng.choice(untried)
        return model.suggest(lambda own: free({**best, **own}), rng)

    # ------------------------------------------------------------ what is known

    def _share_of(self, number: int) -> float:
        """The share of the least time that a block's functions take; 1 where that is not known."""
        known = self._best[number]
        if not known or not self.blocks[number].functions or not math.isfinite(self._least):
            return 1.0
        return min(1.0, known[0] / self._least)

    def _own(self, number: int, config: Config) -> dict[str, Value]:
        return {n: config.get(n, self.start.get(n)) for n in self.blocks[number].names}

    def _tell(self, number: int, config: Config, us: float | None) -> None:
        own = self._own(number, config)
        self._models[number].end(config, us)
        self._right[number].add(config_key(own))
        if us is not None and (self._best[number] is None or us < self._best[number][0]):
            self._best[number] = us, own

    def _combine_best(self) -> dict[str, Value]:
        best = dict(self.start)
        for known in self._best:
            best |= known[1] if known else {}
        return best

    def _expect_together(self) -> float:
        """What the functions take with the best values of each block; infinity while one is not known."""
        return sum(
            known[0] if known else math.inf for known, b in zip(self._best, self.blocks, strict=True) if b.functions
        )

    def _expect(self, config: Config) -> float:
        pairs = zip(self._models, self._best, strict=True)
        return sum(known[0] * math.exp(model.expect(config)) for model, known in pairs if known)
