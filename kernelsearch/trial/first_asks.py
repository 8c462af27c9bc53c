"""An order for a tuner's first asks by the static model: it costs a compile a config, and no GPU time.

Times are `estimated`; only their order is used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from kernelsearch.core.timed_shapes import FAR
from kernelsearch.core.types import Config
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import geometric_mean
from kernelsearch.trial.evaluator import TaskEvaluator


def order_configs(
    evaluation: TaskEvaluator, kernel: Kernel, configs: Sequence[Config]
) -> list[tuple[Config, tuple[float, ...]]]:
    """The configs that compile, with estimated microseconds at each timed shape, the most useful first.

    The first is the fastest in the geometric mean over the shapes; each next one gains most beside those before it,
    and where none gains any more, it is the fastest again. Equal estimates stay in the given order; a config is slow
    where its blocks do not fit. Every config is compiled, by as many threads as there are compile workers; binaries
    are kept for when they run.
    """
    with ThreadPoolExecutor(evaluation.bench.lanes) as pool:
        estimates = list(pool.map(lambda config: evaluation.estimate(kernel, config), configs))
    known = {n: m.by_shape for n, m in enumerate(estimates) if m is not None}
    slowest = {s: max(us.get(s, 0.0) for us in known.values()) for us in known.values() for s in us}
    shapes = [s.key for s in evaluation.bench.facts.shapes if s.key in slowest]
    left = {n: tuple(us.get(s, FAR * slowest[s]) for s in shapes) for n, us in known.items()}
    least, ordered = (math.inf,) * len(next(iter(left.values()), ())), []
    while left:
        best = min(left, key=lambda n: (geometric_mean([*map(min, left[n], least)]), geometric_mean([*left[n]]), n))
        least = tuple(map(min, left[best], least))
        ordered.append((configs[best], left.pop(best)))
    return ordered
