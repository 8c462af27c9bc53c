"""Estimated times next to the configs of rewritten kernels, worked out while other trials run.

A rewritten kernel is first tried at its parent's best config, which may not suit it: a wider load needs a narrower
tile. The static model tells that from compiled binaries alone; its best guess is what the kernel is tuned with first.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from statistics import fmean

from kernelsearch.core.types import Config, config_key
from kernelsearch.kernel.source import Kernel
from kernelsearch.search.facts import Ordered

NEAR = 1.03, 1.6
"""Kernels whose score is between these many times the best: one that is as good is tuned anyway, and tuning seldom
gains more (evolve's rungs). Every estimate costs a compile."""


@dataclass
class NearEstimates:
    """The estimates of a run. They are due a fixed number of asks after they were begun, so that a run stays itself."""

    ordered: Ordered
    delay: int
    _begun: dict[str, Future] = field(default_factory=dict)
    _due: deque[tuple[int, str, Config, Future]] = field(default_factory=deque)

    def restart(self) -> None:
        """Begins the run again; what was estimated is kept."""
        self._due.clear()

    def begin(self, number: int, kernel: Kernel, config: Config, around: Sequence[Config], pool: Executor) -> None:
        """Has the configs around the one that the kernel was tried at in trial `number` compiled and estimated."""
        key = "/".join((kernel.digest, *map(config_key, (config, *around))))
        if key not in self._begun:
            self._begun[key] = pool.submit(self.ordered, kernel, [config, *around])
        self._due.append((number + self.delay, kernel.digest, config, self._begun[key]))

    def take(self, number: int) -> Iterator[tuple[str, Config, Future]]:
        """What is due at ask `number`: kernels, the configs that they were tried at, and the estimates around those."""
        while self._due and self._due[0][0] <= number:
            yield self._due.popleft()[1:]


def find_promise(config: Config, estimates: Sequence[tuple[Config, Sequence[float]]]) -> tuple[Config, float] | None:
    """The config that gains most beside the kernel's own, and the time with both over that with its own alone.

    Of several shapes each has the faster of the two. None if the kernel's own is not estimated.
    """
    own = next((us for c, us in estimates if config_key(c) == config_key(config)), None)
    if own is None:
        return None
    ratios = [[min(a / b, 1.0) for a, b in zip(us, own, strict=True)] for _, us in estimates]
    ratio, best = min((math.exp(fmean(map(math.log, some))), n) for n, some in enumerate(ratios))
    return estimates[best][0], ratio
