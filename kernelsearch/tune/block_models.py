"""Tuning several kernels of one launcher at once: each has a model of its own, of its own times.

A call that launches five kernels takes the sum of their times, and a config of it has twenty names: as one space it is
hardly explored in a hundred trials. But a kernel's time depends on its own names alone, and the run worker times each
launch by itself (`blocks.share_parts`). So a block of names has a surrogate that is told what its own kernels took,
and every trial can say something about each of them. A rewrite of one kernel leaves the others as they were: they have
one history in all rewrites that have them. Now and then all blocks get their best values at once.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernelsearch.core.types import Config, Value, config_key
from kernelsearch.kernel.space import Space
from kernelsearch.tune.blocks import NameBlock

if TYPE_CHECKING:
    from kernelsearch.tune.surrogate import Free, Surrogate

WORTH = 0.0005
"""A block leaves its best values for a config whose expected gain is this share of the whole time."""
TOGETHER = 0.01
"""The best values of all blocks are tried together when that should save this share of the best time."""
DOUBTFUL = 64
"""The latest failures of a kernel of which it may still turn out whose they are."""

Parts = Mapping[str, float]
"""What each function took, in any unit."""


@dataclass
class BlockHistory:
    """The values of a block's names that began and ended, in that order, in all kernels that have its functions.

    best is what its functions took least, and where; right has the keys of values that did not fail.
    """

    space: Space
    best: tuple[float, Config] | None = None
    right: set[str] = field(default_factory=set)
    _begun: dict[str, Config] = field(default_factory=dict)
    _ended: dict[str, float | None] = field(default_factory=dict)
    _model: Surrogate | None = None

    @property
    def model(self) -> Surrogate:
        if self._model is None:
            from kernelsearch.tune.surrogate import Surrogate

            self._model = Surrogate(self.space)
            for own in self._begun.values():
                self._model.begin(own)
            for key, us in self._ended.items():
                self._model.end(self._begun[key], us)
        return self._model

    def forget(self) -> None:
        """Drops the model to save memory; it is made again when it is needed."""
        self._model = None

    def begin(self, own: Config) -> None:
        key = config_key(own)
        if key not in self._begun:
            self._begun[key] = own
            if self._model is not None:
                self._model.begin(own)

    def end(self, own: Config, us: float | None) -> None:
        """What the functions took, None for a failure: the first word counts, but for what is best."""
        self.begin(own)
        if (key := config_key(own)) not in self._ended:
            self._ended[key] = us
            if self._model is not None:
                self._model.end(own, us)
        if us is not None and (self.best is None or us < self.best[0]):
            self.best = us, own


class BlockModels:
    """Suggests configs of a space of several blocks, as `Surrogate` does of one. It does without estimates.

    start has the values of names where nothing better is known. inherited says that the start is the best config of
    another kernel: a block of which little is known then looks near it. shared are histories of blocks by their names,
    which other kernels of the run have too.
    """

    def __init__(
        self,
        space: Space,
        blocks: Sequence[NameBlock],
        start: Config,
        inherited: bool = False,
        shared: Mapping[tuple[str, ...], BlockHistory] | None = None,
    ) -> None:
        self.blocks = blocks = [b for b in blocks if any(len(space.values[n]) > 1 for n in b.names)]
        self.start, self.inherited = start, inherited
        self._spaces = [Space({n: space.values[n] for n in b.names}) for b in blocks]
        known = shared or {}
        both = zip(blocks, self._spaces, strict=True)
        self.histories = [known.get(b.names) or BlockHistory(own) for b, own in both]
        self._failed: list[Config] = []
        self._tuned = sorted({f for block in blocks for f in block.functions})
        self._least = math.inf  # of what these took together

    @property
    def is_told(self) -> bool:
        """Whether it is known what a function took."""
        return any(h.best is not None for h in self.histories)

    def begin(self, config: Config) -> None:
        for number, history in enumerate(self.histories):
            history.begin(self._own(number, config))

    def end(self, config: Config, score: float | None, parts: Parts) -> None:
        """A failure is blamed on a block where all the others have been right with their values."""
        grown = score is None and not parts
        if grown:
            self._failed = [*self._failed[1 - DOUBTFUL :], config]
        for number, block in enumerate(self.blocks):
            if parts and parts.keys() >= {*block.functions}:
                own, us = self._own(number, config), sum(parts[f] for f in block.functions)
                history, key = self.histories[number], config_key(own)
                history.end(own, us if block.functions else score)
                grown = grown or key not in history.right
                history.right.add(key)
        if score is not None and parts.keys() >= {*self._tuned}:
            self._least = min(self._least, sum(parts[f] for f in self._tuned) or math.inf)
        if grown and self._failed:
            self._failed = [failed for failed in self._failed if not self._blame(failed)]

    def _blame(self, failed: Config) -> bool:
        """Whether it is known whose failure it is. Until then no block suggests its part of it again."""
        owns = [self._own(n, failed) for n in range(len(self.blocks))]
        unknown = [n for n, own in enumerate(owns) if config_key(own) not in self.histories[n].right]
        if len(unknown) == 1:
            self.histories[unknown[0]].end(owns[unknown[0]], None)
        return len(unknown) < 2

    def combine_best(self) -> dict[str, Value]:
        """The best values of each block, those of the start where none are known."""
        best = dict(self.start)
        for history in self.histories:
            best |= history.best[1] if history.best else {}
        return best

    def suggest(self, free: Free, rng: random.Random) -> dict[str, Value] | None:
        """The best values of all blocks where that promises a gain, else new values where a block may gain by them."""
        best = self.combine_best()
        if self._expect_together() < (1.0 - TOGETHER) * self._least and free(best):
            return best
        moves: list[tuple[float, dict[str, Value]]] = []
        for number, history in enumerate(self.histories):
            own = self._suggest_own(number, best, free, random.Random(rng.getrandbits(64)))
            if own is not None:
                moves.append((history.model.expect_gain(own) * self._share_of(number), own))
        config = best
        for gain, own in sorted(moves, key=lambda move: -move[0]):
            if (gain > WORTH or config is best) and free({**config, **own}):
                config = {**config, **own}
        return None if config is best else config

    def _suggest_own(self, number: int, best: Config, free: Free, rng: random.Random) -> dict[str, Value] | None:
        """New values of one block, beside the best ones of the others."""
        model = self.histories[number].model
        if self.inherited and not model.ready:
            near = (self._own(number, c) for c in self._spaces[number].iterate_neighbours(self._own(number, best)))
            untried = [c for c in near if not model.has_begun(c) and free({**best, **c})]
            if untried:
                return rng.choice(untried)
        return model.suggest(lambda own: free({**best, **own}), rng)

    # ------------------------------------------------------------ what is known

    def _share_of(self, number: int) -> float:
        """The share of the least time that a block's functions take; 1 where that is not known."""
        known = self.histories[number].best
        if not known or not self.blocks[number].functions or not math.isfinite(self._least):
            return 1.0
        return min(1.0, known[0] / self._least)

    def _own(self, number: int, config: Config) -> dict[str, Value]:
        return {n: config.get(n, self.start.get(n)) for n in self.blocks[number].names}

    def _expect_together(self) -> float:
        """What the functions take with the best values of each block; infinity while one is not known."""
        both = zip(self.histories, self.blocks, strict=True)
        return sum(h.best[0] if h.best else math.inf for h, b in both if b.functions)
