"""A run of a search before it begins: its facts for the record, and the search set up with its parts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from kernelsearch.core.types import TaskFacts
from kernelsearch.propose import proposers
from kernelsearch.propose.contract import Proposer, Rewrite
from kernelsearch.propose.proposers import ModelOptions
from kernelsearch.record.rows import Run, RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search import strategies
from kernelsearch.search.contract import Strategy
from kernelsearch.search.facts import FirstAsks, Settings
from kernelsearch.search.loop import Search, make_start
from kernelsearch.search.population import join_population
from kernelsearch.trial import own_configs
from kernelsearch.trial.bench import versions
from kernelsearch.trial.evaluator import Evaluator, TaskEvaluator
from kernelsearch.trial.first_asks import order_configs


@dataclass(frozen=True)
class PlannedRun:
    """A run of a strategy on an opened task.

    name is what the record calls the strategy; task is narrowed to the shapes of the run; params are the strategy's;
    settings are further facts that must match on resume; starts are the kernels that the run begins with.
    """

    evaluation: TaskEvaluator
    task: TaskFacts
    strategy: str
    name: str
    model: ModelOptions
    seed: int
    window: int
    trials: int
    params: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    starts: tuple[Rewrite, ...] = ()

    @cached_property
    def first(self) -> FirstAsks | None:
        """The order of the seed's first configs; None without a GPU, where times are the static model's anyway."""
        if self.evaluation.bench.device is None:
            return None
        return FirstAsks.of(partial(order_configs, self.evaluation), self.window)

    @cached_property
    def facts(self) -> RunFacts:
        first = self.first.as_facts() if self.first else {}
        shapes = {"shapes": [s.key for s in self.task.shapes]}
        own = own_configs.as_facts(self.task)
        settings = {**shapes, **own, **proposers.as_facts(self.model), **self.settings, **first}
        where = self.evaluation.bench.where
        return RunFacts(self.name, self.model.name, self.seed, self.window, self.trials, where, versions(), settings)

    def make_strategy(self, proposer: Proposer) -> Strategy:
        start = make_start(self.task, self.seed, self.trials, proposer)
        strategy = strategies.make(self.strategy, start, **self.params)
        return join_population(self.starts, self.trials, strategy)

    def set_up(
        self,
        proposer: Proposer,
        evaluator: Evaluator,
        store: Store,
        resumed: Run | None,
        budget_seconds: float | None = None,
        waits: bool = True,
    ) -> Search:
        """The search, with its row in the store and its proposer bound to it.

        Without waits the run goes on while `full` verdicts are awaited, and is told again where one rejects.
        """
        threads = count_threads(self.window, self.evaluation.bench.waits)
        make_strategy = partial(self.make_strategy, proposer)
        anew = None if waits else make_strategy
        settings = Settings(self.facts, threads, budget_seconds, self.first, anew, self.starts)
        search = Search(self.task, make_strategy(), proposer, evaluator, store, settings, resumed)
        proposers.bind_record(proposer, store, search.run_row, resumed)
        return search


def count_threads(window: int, waits: bool) -> int:
    """Threads that evaluate one run's candidates: they wait for a GPU or for other machines, or use the cores here."""
    return window if waits else min(window, 2 + len(os.sched_getaffinity(0)))
