"""The loop itself: up to `window` candidates in flight, landed, told and stored in ask order.

Ask n has seen exactly the trials up to n - window (and always the seed, whose time is the unit of every score),
so that a run is the same run on any number of workers, and a killed one continues by asking and telling its stored
trials again.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from kernelsearch import space as spaces
from kernelsearch.errors import TaskError
from kernelsearch.interrupts import Interrupts
from kernelsearch.protocols import Evaluator, Proposer, Start, Strategy
from kernelsearch.record.pages import StoredTrials
from kernelsearch.record.rows import Run
from kernelsearch.record.store import Store
from kernelsearch.search.begun import begun
from kernelsearch.search.candidates import Candidate, Candidates
from kernelsearch.search.facts import Progress, Result, Settings
from kernelsearch.search.told import Told, seed_is_wrong
from kernelsearch.source import Kernel
from kernelsearch.tune import seed_tuners
from kernelsearch.types import Outcome, TaskFacts, Trial

OnTrial = Callable[[Trial, Progress], None]


@dataclass(frozen=True)
class _Flying:
    """A candidate under evaluation, or one whose trial is stored already."""

    number: int
    candidate: Candidate
    evaluated: Future | Trial


def start_for(task: TaskFacts, seed: int = 0, trials: int = 200) -> Start:
    """What a strategy for this task is made with."""
    kernel = Kernel.parse(task.seed)
    tuners = seed_tuners(task, kernel, seed)
    return Start(kernel.digest, tuners.space(kernel.digest).values, tuners.best(kernel.digest), seed, trials)


class Search:
    """One run of a search. Raises SpaceError at once when the task's space holds no possible config.

    resume is the stored run to go on with; its facts must be those of the settings, but for the budget
    and the versions, else StoreError.
    """

    def __init__(
        self,
        task: TaskFacts,
        strategy: Strategy,
        proposer: Proposer,
        evaluator: Evaluator,
        store: Store,
        settings: Settings,
        resume: Run | None = None,
    ) -> None:
        self.task, self.strategy, self.proposer, self.evaluator = task, strategy, proposer, evaluator
        self.store, self.settings, self.facts = store, settings, settings.facts
        self.seed = Kernel.parse(task.seed)
        possible = settings.possible or spaces.known_constraints(task)
        self.tuners = seed_tuners(task, self.seed, self.facts.seed, possible)
        spaces.checked(self.tuners.space(self.seed.digest), self.seed, possible)
        self._begun = begun(store, task, self.facts, resume)
        self.run_row = self._begun.run
        self._told = Told(task)
        self._candidates = Candidates(
            task, self.facts, self.seed, strategy, proposer, self.tuners, self._told, self._begun
        )  # fmt: skip
        self._started = time.monotonic()
        self._used_up = self._ended = False

    def run(self, on_trial: OnTrial = lambda trial, progress: None, ending: bool = False) -> Result:
        """Runs to the end of the budget, calling on_trial after each trial in order.

        Ctrl-C finishes what is in flight, a second one drops it; either way the result says `interrupted` and all told
        trials are stored. ending: an interrupted run is the last thing that the process does (`Interrupts`). Raises
        TaskError when the seed itself is rejected, StoreError when a row cannot be written or a resumed run disagrees
        with its rows.
        """
        pool = ThreadPoolExecutor(self.settings.workers or self.facts.window, thread_name_prefix="evaluate")
        with Interrupts(ending) as interrupts:
            try:
                for awaited in self.steps(pool, lambda: interrupts.count > 0, on_trial):
                    wait([awaited])
            except KeyboardInterrupt:
                self._ended = False
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                if self._ended:
                    interrupts.forget()
        return self.result(interrupts.count > 0)

    def result(self, interrupted: bool = False) -> Result:
        """What has come of the run so far."""
        told, seconds = self._told, time.monotonic() - self._started
        trials = StoredTrials(self.store, self.run_row.id, told.count)
        return Result(
            self.run_row, trials, told.best, told.per_shape, seconds, interrupted, self._used_up
        )  # fmt: skip

    def steps(
        self, pool: Executor, stopping: Callable[[], bool] = lambda: False,
        on_trial: OnTrial = lambda trial, progress: None, asking: Executor | None = None,
    ) -> Iterator[Future]:  # fmt: skip
        """The run as a generator that yields each future that it has to wait for: several runs can share one thread.

        Ends early, with what is in flight, when stopping() says so. Raises what `run` raises. asking: where the run asks for
        its candidates, if a model's answer may be waited for there; None: here.
        """
        flight: deque[_Flying] = deque()
        ordering: Future | None = None
        for number in range(self.facts.trials):
            while flight and (number == 1 or len(flight) >= self.facts.window):
                yield from self._land(flight.popleft(), pool, on_trial)
            if stopping() or self._out_of_time():
                break
            if number == 1 and ordering is not None:
                yield ordering
                self.tuners.foremost(self.seed.digest, ordering.result(), self.settings.first.asked)
            candidate = yield from self._asked(number, asking)
            if candidate is None:
                while flight:  # what is in flight may open up more
                    yield from self._land(flight.popleft(), pool, on_trial)
                candidate = yield from self._asked(number, asking)
            if candidate is None:
                self._used_up = True
                break
            flight.append(_Flying(number, candidate, self._launched(pool, number, candidate)))
            ordering = self._ordering(pool) if number == 0 else ordering
        while flight:
            yield from self._land(flight.popleft(), pool, on_trial)
        self._ended = self._used_up or self._told.count >= self.facts.trials
        if self._ended:
            self.store.finish_run(self.run_row)

    def _asked(self, number: int, asking: Executor | None) -> Generator[Future, None, Candidate | None]:
        """The candidate of this ask; nothing else of the run goes on before it is there."""
        if asking is None:
            return self._candidates.ask(number)
        asked = asking.submit(self._candidates.ask, number)
        yield asked
        return asked.result()

    def _ordering(self, pool: Executor) -> Future | None:
        """The seed's first configs by the static model, worked out beside the first trial."""
        first = self.settings.first
        if first is None or not getattr(self.strategy, "ordered", True):
            return None
        return pool.submit(first.ordered, self.seed, self.tuners.drawn(self.seed.digest, first.drawn))

    def _launched(self, pool: Executor, number: int, candidate: Candidate) -> Future | Trial:
        if number < len(self._begun):
            return self._begun.trial(number, candidate.proposal, candidate.kernel.digest, candidate.config)
        incumbent = self._told.best.outcome.measurement if self._told.best else None
        return pool.submit(self.evaluator.evaluate, candidate.kernel, candidate.config, incumbent)

    def _land(self, flying: _Flying, pool: Executor, on_trial: OnTrial) -> Iterator[Future]:
        number, candidate, evaluated = flying.number, flying.candidate, flying.evaluated
        if isinstance(evaluated, Trial):
            trial = evaluated
        else:
            yield evaluated
            outcome = evaluated.result()
            if self._needs_full(outcome):
                completing = pool.submit(self.evaluator.complete, candidate.kernel, candidate.config, outcome)
                yield completing
                outcome = completing.result()
            trial = self._judged(number, candidate, outcome)
            self.store.add_trial(self.run_row, trial, candidate.structure)
        self._tell(trial)
        on_trial(trial, self._progress())
        if number == 0 and not trial.accepted:
            self.store.finish_run(self.run_row)
            raise TaskError(seed_is_wrong(self.task, trial))

    def _tell(self, trial: Trial) -> None:
        self._told.tell(trial)
        self.tuners.tell(trial)
        self.strategy.tell(trial)
        if hasattr(self.proposer, "tell"):
            made = self._told.structures[trial.kernel]
            self.proposer.tell(trial, made.kernel, made.parent)

    def _progress(self) -> Progress:
        told, done = self._told, self._told.count
        cost = getattr(self.proposer, "spending", str)()
        seconds = time.monotonic() - self._started
        replayed = min(done, len(self._begun))
        return Progress(done, self.facts.trials, replayed, told.best, told.counts.copy(), seconds, cost)

    def _needs_full(self, outcome: Outcome) -> bool:
        """Whether this would be the new best and has only passed the `screen`."""
        screened = outcome.verdict.depth != "full" and hasattr(self.evaluator, "complete")
        return screened and self._told.beats(outcome)

    def _judged(self, number: int, candidate: Candidate, outcome: Outcome) -> Trial:
        kernel, score = candidate.kernel.digest, self._told.score(outcome)
        made = self._told.structures[kernel]
        return Trial(number, candidate.proposal, kernel, candidate.config, outcome, score, made.edit, made.rationale)

    def _out_of_time(self) -> bool:
        budget = self.settings.budget_seconds
        return budget is not None and time.monotonic() - self._started >= budget
