"""An order for a tuner's first asks by the static model: it costs a compile a config, and no GPU time.

Times are `estimated`; only their order is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from kernelsearch.core.types import Config
from kernelsearch.kernel.source import Kernel
from kernelsearch.record.rows import geometric_mean
from kernelsearch.trial.evaluator import TaskEvaluator


def order_configs(evaluation: TaskEvaluator, kernel: Kernel, configs: Sequence[Config]) -> list[tuple[Config, float]]:
    """The configs that compile, the fastest first, with estimated microseconds (geometric mean over the timed shapes).

    Equal estimates stay in the given order. Every config is compiled, by as many threads as there are compile workers;
    binaries are kept for when they run.
    """
    with ThreadPoolExecutor(evaluation.bench.lanes) as pool:
        estimates = list(pool.map(lambda config: evaluation.estimate(kernel, config), configs))
    times = [(geometric_mean([t.time_us for t in m.times]), n) for n, m in enumerate(estimates) if m is not None]
    return [(configs[n], us) for us, n in sorted(times)]
