"""What the static model is for before anything runs: an order for a tuner's first asks, and hopeless candidates left out.

Both cost a compile and no GPU time. Times are `estimated`; which order they give is all that is used of them.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from kernelsearch.core.types import Config, Measurement, Outcome, Verdict, Word
from kernelsearch.kernel.launch import LaunchError
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.static_model.fitted import HOPELESS
from kernelsearch.record.rows import geometric_mean
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.estimate import estimated

STAGE = "estimate"
"""The stage of a verdict that says only that a candidate was not worth a measurement."""


class Compiling(Protocol):
    """An `Evaluation`, as far as estimates need one."""

    bench: Bench
    timed: tuple[str, ...]

    def compiles(self, kernel: Kernel, config: Config) -> Verdict: ...


class Evaluating(Protocol):
    """What `Pruned` stands before."""

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome: ...

    def complete(self, kernel: Kernel, config: Config, outcome: Outcome) -> Outcome: ...


def estimate(evaluation: Compiling, kernel: Kernel, config: Config) -> Measurement | None:
    """The estimated times at the timed shapes, from binaries and launches alone; None for what does not compile."""
    bench, shapes = evaluation.bench, evaluation.timed
    if not evaluation.compiles(kernel, config).accepted:
        return None
    try:
        specs = [
            (s, bound.of_seed)
            for fact, bound in bench.bound(kernel, config, shapes)
            for s in bound.specialisations(fact)
        ]
    except LaunchError:
        return None
    binaries, refused = bench.binaries(kernel, tuple(dict.fromkeys(specs)))
    return None if refused is not None else estimated(bench, kernel, config, binaries, {}, shapes)


def ordered(
    evaluation: Compiling, kernel: Kernel, configs: Sequence[Config], workers: int | None = None
) -> list[tuple[Config, float]]:
    """The configs that compile with their estimated microseconds (geometric mean over the timed shapes), the fastest first.

    Equal estimates stay in the given order.

    Every config is compiled, by as many threads as there are compile workers; binaries are kept for when they run.
    """
    with ThreadPoolExecutor(workers or evaluation.bench.compilers.size) as pool:
        found = list(pool.map(lambda config: estimate(evaluation, kernel, config), configs))
    times = [(_mean_us(m), n) for n, m in enumerate(found) if m is not None]
    return [(configs[n], us) for us, n in sorted(times)]


class Pruned:
    """Evaluates through `inner` what has a chance: an estimate, put right by the seed's, within `factor` times the incumbent.

    The first candidate without an incumbent (the seed) is always evaluated and says how far estimates are off here, so
    that what is left out depends on the incumbent alone and not on the order in which workers finish.
    """

    def __init__(self, inner: Evaluating, evaluation: Compiling, factor: float = HOPELESS) -> None:
        if not factor > 1.0:
            raise ValueError(f"factor must be above 1, not {factor}")
        self.inner, self.evaluation, self.factor = inner, evaluation, factor
        self.seed: tuple[Measurement, Measurement] | None = None
        self._lock = threading.Lock()

    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        if incumbent is not None and self.seed is not None:
            times = self._times(kernel, config, incumbent)
            if times is not None and times > self.factor:
                reason = f"estimated at {times:.1f} times the incumbent's time: not measured"
                return Outcome(Verdict(Word.TIMING, STAGE, reason))
            return self.inner.evaluate(kernel, config, incumbent)
        outcome = self.inner.evaluate(kernel, config, incumbent)
        if incumbent is None and outcome.measurement is not None:
            self.begin(kernel, config, outcome.measurement)
        return outcome

    def begin(self, kernel: Kernel, config: Config, measurement: Measurement) -> None:
        """The seed's measurement, also that of a run that goes on; the first one stays."""
        known = estimate(self.evaluation, kernel, config)
        with self._lock:
            if known is not None and self.seed is None:
                self.seed = (measurement, known)

    def complete(self, kernel: Kernel, config: Config, outcome: Outcome) -> Outcome:
        return self.inner.complete(kernel, config, outcome)

    def _times(self, kernel: Kernel, config: Config, incumbent: Measurement) -> float | None:
        """The calibrated estimate over the incumbent's time, geometric mean over the shapes that all have."""
        found, (seed, known) = estimate(self.evaluation, kernel, config), self.seed
        if found is None:
            return None
        ratios = []
        for time in found.times:
            others = [m.time_us(time.shape) for m in (seed, known, incumbent)]
            if None not in others:
                ratios.append(time.time_us * others[0] / (others[1] * others[2]))
        return geometric_mean(ratios) if ratios else None


def _mean_us(measurement: Measurement) -> float:
    return geometric_mean([t.time_us for t in measurement.times])
