"""Runs of a strategy on a recorded space, which count unique evaluations only.

The loop is the search's own without compilers, GPU and database: ask n has seen the trials up to n - window, no
config is tried twice, and a strategy that asks for a rewrite gets a retune, since there is one kernel.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernelsearch.core.errors import StrategyError
from kernelsearch.core.types import (
    Config,
    Evidence,
    Measurement,
    Outcome,
    Proposal,
    ProposalKind,
    ShapeTime,
    Trial,
    Verdict,
    Word,
    config_key,
)
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.space import Space
from kernelsearch.search import strategies
from kernelsearch.search.contract import Start, Strategy, TunerAlone
from kernelsearch.trial.evaluator import Evaluator
from kernelsearch.tune import SAMPLERS, Tuner
from recorded.space import RecordedSpace

KERNEL = "recorded"
"""The digest of the one kernel."""
PROTOCOL = "recorded"
WORDS = {"compile": Word.COMPILE, "runtime": Word.CRASH, "correctness": Word.WRONG, "timeout": Word.TIMEOUT}


@dataclass(frozen=True)
class SimulatedRun:
    """One run: its seed, and the recorded time of the config that looked best after 1, 2, ... unique trials.

    None before the first config that did not fail.
    """

    seed: int
    best_us: tuple[float | None, ...]


@dataclass(frozen=True)
class RecordedEvaluator(Evaluator):
    """A recorded space as an evaluator, for any kernel: the time of a config when it was measured, or how it failed.

    With a noise seed the time is the median of as many samples, drawn from the row's own with replacement, as another
    measurement could have given. It is a function of (noise seed, config), as if measured once.
    """

    space: RecordedSpace
    noise_seed: int | None = None

    def evaluate(self, kernel: Kernel | None, config: Config, incumbent: Measurement | None = None) -> Outcome:
        row = self.space.by_key[config_key({name: config[name] for name in self.space.parameters})]
        if row.time_us is None:
            return Outcome(Verdict(WORDS[str(row.failure)], "recorded", f"recorded as {row.failure}"))
        time_us = row.time_us
        if self.noise_seed is not None and row.samples_us:
            chance = random.Random(f"{self.noise_seed}/{config_key(row.config)}")
            time_us = statistics.median(chance.choices(row.samples_us, k=len(row.samples_us)))
        times = (ShapeTime(PROTOCOL, time_us, samples=len(row.samples_us)),)
        measurement = Measurement(Evidence.MEASURED, self.space.device, PROTOCOL, times)
        return Outcome(Verdict(Word.ACCEPT, "recorded"), measurement)


def find_strategy(name: str) -> Callable[[Start], Strategy]:
    """Makes the strategy of a shipped name, a path or a sampler's name. Raises StrategyError."""
    if name not in strategies.list_shipped() and name in SAMPLERS:
        return lambda start: TunerAlone(start, name)
    try:
        strategies.load(name)
    except StrategyError as error:
        if "unknown strategy" not in str(error):
            raise
        samplers = ", ".join(s for s in SAMPLERS if s not in strategies.list_shipped())
        raise StrategyError(f"{error}; or one of the tuner's samplers: {samplers}") from None
    return lambda start: strategies.make(name, start)


def simulate(
    space: RecordedSpace,
    strategy: str | Callable[[Start], Strategy],
    trials: int,
    seed: int,
    noise: bool = False,
    window: int = 1,
    first: Sequence[Config] = (),
    estimates: Sequence[tuple[Config, float]] = (),
) -> SimulatedRun:
    """One run of a strategy on the space; it ends early when the space is used up or the strategy has nothing to ask.

    strategy is a name for `find_strategy`, or a function that makes one. The tuner gives the configs `first` first; its
    default sampler goes by the configs with estimated times in `estimates`.
    """
    parameters = dict(space.parameters)
    tuner = Tuner(Space(parameters), {}, lambda c: config_key(c) in space.by_key, [row.config for row in space.rows])
    tuner.first, tuner.estimates = [dict(c) for c in first], estimates
    make = find_strategy(strategy) if isinstance(strategy, str) else strategy
    searcher, evaluator = (
        make(Start(KERNEL, parameters, {}, seed, trials)),
        RecordedEvaluator(space, seed if noise else None),
    )
    flight: deque[Trial] = deque()
    best: list[float | None] = [None]
    least = math.inf

    def land(trial: Trial) -> None:
        nonlocal least
        tuner.tell(trial.config, trial.score)
        searcher.tell(trial)
        if trial.score is not None and trial.score < least:
            least = trial.score
            best.append(space.by_key[config_key(trial.config)].time_us)
        else:
            best.append(best[-1])

    for number in range(1, min(trials, len(space.rows)) + 1):
        while len(flight) >= window:
            land(flight.popleft())
        proposal = searcher.ask(number)
        config = _ask(tuner, proposal, random.Random(f"{seed}/{number}/tuner")) if proposal else None
        if proposal is None or config is None:
            break
        outcome = evaluator.evaluate(None, config)
        score = outcome.measurement.times[0].time_us if outcome.measurement else None
        flight.append(Trial(number, proposal, KERNEL, config, outcome, score))
    for trial in flight:
        land(trial)
    return SimulatedRun(seed, tuple(best[1:]))


def _ask(tuner: Tuner, proposal: Proposal, rng: random.Random) -> Config | None:
    if proposal.kind is not ProposalKind.REWRITE and proposal.config is not None:
        best = tuner.best[1] if tuner.best else {}
        return tuner.take({**best, **proposal.config})
    return tuner.ask(rng, proposal.sampler)
