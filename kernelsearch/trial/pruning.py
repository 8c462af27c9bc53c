"""Uses of the static model before anything runs: an order for a tuner's first asks, and hopeless candidates left out.

Both cost a compile and no GPU time. Times are `estimated`; only their order is used.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from kernelsearch.core.types import Config, Measurement, Outcome, Verdict, Word
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.static_model.fitted import HOPELESS
from kernelsearch.record.rows import geometric_mean
from kernelsearch.trial.evaluator import Evaluator, TaskEvaluator

STAGE = "estimate"
"""The stage of a verdict on a candidate that was not worth a measurement."""


def order_configs(
    evaluation: TaskEvaluator, kernel: Kernel, configs: Sequence[Config], workers: int | None = None
) -> list[tuple[Config, float]]:
    """The configs that compile, the fastest first, with estimated microseconds (geometric mean over the timed shapes).

    Equal estimates stay in the given order. Every config is compiled, by as many threads as there are compile workers;
    binaries are kept for when they run.
    """
    with ThreadPoolExecutor(workers or evaluation.bench.lanes) as pool:
        estimates = list(pool.map(lambda config: evaluation.estimate(kernel, config), configs))
    times = [(geometric_mean([t.time_us for t in m.times]), n) for n, m in enumerate(estimates) if m is not None]
    return [(configs[n], us) for us, n in sorted(times)]


class PruningEvaluator(Evaluator):
    """Evaluates only candidates whose corrected estimate is within `factor` times the incumbent, through `inner`.

    The first candidate without an incumbent (the seed) is always evaluated and shows how far estimates are off here, so
    that what is left out depends on the incumbent alone and not on the order in which workers finish.
    """

    def __init__(self, inner: Evaluator, evaluation: TaskEvaluator, factor: float = HOPELESS) -> None:
        if not factor > 1.0:
            raise ValueError(f"factor must be above 1, not {factor}")
        self.inner, self.evaluation, self.factor = inner, evaluation, factor
        self.seed: tuple[Measurement, Measurement] | None = None
        self._lock = threading.Lock()

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        if incumbent is not None and self.seed is not None:
            times = self._compare(kernel, config, incumbent)
            if times is not None and times > self.factor:
                reason = f"estimated at {times:.1f} times the incumbent's time: not measured"
                return Outcome(Verdict(Word.TIMING, STAGE, reason))
            return self.inner.evaluate(kernel, config, incumbent)
        outcome = self.inner.evaluate(kernel, config, incumbent)
        if incumbent is None and outcome.measurement is not None:
            self.begin(kernel, config, outcome.measurement)
        return outcome

    def begin(self, kernel: Kernel, config: Config, measurement: Measurement) -> None:
        """Takes the seed's measurement, also that of a resumed run; the first one stays."""
        estimated = self.evaluation.estimate(kernel, config)
        with self._lock:
            if estimated is not None and self.seed is None:
                self.seed = (measurement, estimated)

    def complete(self, kernel: Kernel, config: Config, outcome: Outcome) -> Outcome:
        return self.inner.complete(kernel, config, outcome)

    def _compare(self, kernel: Kernel, config: Config, incumbent: Measurement) -> float | None:
        """The calibrated estimate over the incumbent's time, geometric mean over the shapes that all have."""
        estimated = self.evaluation.estimate(kernel, config)
        ratios = []
        for time in estimated.times if estimated else ():
            measured, model, best = (m.time_us(time.shape) for m in (*self.seed, incumbent))
            if None not in (measured, model, best):
                ratios.append(time.time_us * measured / (model * best))
        return geometric_mean(ratios) if ratios else None
