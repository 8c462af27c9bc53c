"""`simulate`: runs of a strategy on a recorded space, which count unique evaluations only.

The loop is the search's own without compilers, GPU and database: ask n has seen the trials up to n - window, no
config is tried twice, and a strategy that asks for a rewrite gets a retune, since there is one kernel.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernelsearch.core.errors import StrategyError
from kernelsearch.core.types import Config, Proposal, ProposalKind, Trial, config_key
from kernelsearch.kernel.space import Space
from kernelsearch.record.recorded_space import RecordedSpace
from kernelsearch.search import strategies
from kernelsearch.search.contract import Start, Strategy
from kernelsearch.search.replay.evaluator import RecordedEvaluator
from kernelsearch.tune import SAMPLERS, Tuner

KERNEL = "recorded"
"""The digest of the one kernel."""


@dataclass(frozen=True)
class SimulatedRun:
    """One run: its seed, and the recorded time of the config that looked best after 1, 2, ... unique trials.

    None before the first config that did not fail.
    """

    seed: int
    best_us: tuple[float | None, ...]


@dataclass(frozen=True)
class TunerAlone(Strategy):
    """The strategy of a sampler's name: the sampler answers every ask."""

    sampler: str

    def ask(self, number: int) -> Proposal | None:
        return Proposal(ProposalKind.RETUNE, (KERNEL,), sampler=self.sampler)

    def tell(self, trial: Trial) -> None:
        """The tuner is told by the simulation."""


def find_strategy(name: str) -> Callable[[Start], Strategy]:
    """Makes the strategy of a shipped name, a path or a sampler's name. Raises StrategyError."""
    if name not in strategies.list_shipped() and name in SAMPLERS:
        return lambda start: TunerAlone(name)
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

    strategy is a name for `named`, or a function that makes one. The tuner gives the configs `first` first; its default
    sampler goes by the configs with estimated times in `estimates`.
    """
    parameters = dict(space.parameters)
    tuner = Tuner(Space(parameters), {}, lambda c: config_key(c) in space.by_key, [row.config for row in space.rows])
    tuner.first, tuner.estimates = [dict(c) for c in first], estimates
    strategy = (find_strategy(strategy) if isinstance(strategy, str) else strategy)(
        Start(KERNEL, parameters, {}, seed, trials)
    )
    evaluator = RecordedEvaluator(space, seed if noise else None)
    flight, best, least = [], [None], math.inf

    def land(trial: Trial) -> None:
        nonlocal least
        tuner.tell(trial.config, trial.score)
        strategy.tell(trial)
        better = trial.score is not None and trial.score < least
        least = trial.score if better else least
        best.append(space.by_key[config_key(trial.config)].time_us if better else best[-1])

    for number in range(1, min(trials, len(space.rows)) + 1):
        while len(flight) >= window:
            land(flight.pop(0))
        proposal = strategy.ask(number)
        config = None if proposal is None else _ask(tuner, proposal, random.Random(f"{seed}/{number}/tuner"))
        if config is None:
            break
        outcome = evaluator.evaluate(None, config)
        score = outcome.measurement.times[0].time_us if outcome.measurement else None
        flight.append(Trial(number, proposal, KERNEL, config, outcome, score))
    for trial in flight:
        land(trial)
    return SimulatedRun(seed, tuple(best[1:]))


def as_json(space: RecordedSpace, strategy: str, runs: list[SimulatedRun]) -> dict[str, Any]:
    """The runs as the command prints them with --json."""
    rows = [{"seed": run.seed, "best_us": list(run.best_us)} for run in runs]
    return {"strategy": strategy, "optimum_us": space.optimum_us, "runs": rows}


def _ask(tuner: Tuner, proposal: Proposal, rng: random.Random) -> Config | None:
    if proposal.kind is not ProposalKind.REWRITE and proposal.config is not None:
        best = tuner.best[1] if tuner.best else {}
        return tuner.take({**best, **proposal.config})
    return tuner.ask(rng, proposal.sampler)
