"""Ray's actors that answer as the simulated landscape does, after a real wait; and a run of a search over them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import simulated
from kernelsearch.cluster.crew import Crew
from kernelsearch.cluster.holder import describe_kernel
from kernelsearch.core.types import config_key
from kernelsearch.record.rows import RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search import Search, Settings, make_start, strategies
from kernelsearch.trial.evaluator import Evaluator

places = [str(folder) for folder in Path(__file__).resolve().parents[:2]]
os.environ["PYTHONPATH"] = os.pathsep.join([*places, os.environ.get("PYTHONPATH", "")])  # for nodes that are started

LAND = simulated.Landscape(5, edits=40)


class SimulatedHolder:
    """A worker whose evaluations take so many seconds of waiting."""

    def __init__(self) -> None:
        self.evaluator = simulated.Failing(simulated.Noisy(simulated.Simulated(LAND), 0.02), 0.2)

    def evaluate(self, seconds: float, kernel: Any, config: Any, incumbent: Any) -> Any:
        time.sleep(seconds)
        return self.evaluator.evaluate(kernel, config, incumbent)

    def read_card(self) -> dict[str, Any]:
        return {"pid": os.getpid()}


class Crewed(Evaluator):
    """Evaluates through a crew of simulated workers."""

    def __init__(self, crew: Crew, seconds: float) -> None:
        self.crew, self.seconds = crew, seconds

    def evaluate(self, kernel, config, incumbent=None):
        given = self.seconds, kernel, config, incumbent
        return self.crew.ask(describe_kernel(kernel, config), "evaluate", lambda station: given)


def make_search(store: Store, evaluator: Evaluator, trials: int, window: int, resume: Any = None) -> Search:
    task = simulated.task()
    strategy = strategies.make("evolve", make_start(task, 0, trials))
    settings = Settings(RunFacts("evolve", "simulated", 0, window, trials))
    return Search(task, strategy, simulated.SimulatedProposer(LAND), evaluator, store, settings, resume)


def story(trials: Any) -> list[tuple]:
    """All that two runs that should be one must agree in."""
    return [(t.number, t.proposal, t.kernel, config_key(t.config), t.outcome.verdict.word, t.score) for t in trials]
