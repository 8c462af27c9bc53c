"""The loop of a search: up to `window` candidates in flight, which are told and stored in ask order.

Ask n has seen exactly the trials up to n - window (and always the seed, whose time is the unit of every score).
So a run is the same run on any number of workers, and a killed one continues by asking and telling its stored
trials again.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial

from kernelsearch.core.errors import TaskError
from kernelsearch.core.interrupts import Interrupts
from kernelsearch.core.types import Outcome, ProposalKind, TaskFacts, Trial
from kernelsearch.kernel import space as spaces
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.contract import Proposer
from kernelsearch.record.rows import Run
from kernelsearch.record.store import Store
from kernelsearch.record.stored_trials import StoredTrials
from kernelsearch.search.candidates import Candidate, CandidateMaker
from kernelsearch.search.contract import Start, Strategy
from kernelsearch.search.facts import Progress, Result, Settings
from kernelsearch.search.history import RunState, explain_wrong_seed
from kernelsearch.search.near_estimates import NEAR, NearEstimates, find_promise
from kernelsearch.search.pending import PendingTrials, ProofRejected
from kernelsearch.search.runs import begin_run
from kernelsearch.trial.evaluator import Evaluator
from kernelsearch.tune import make_seed_tuners
from kernelsearch.tune.blocks import find_blocks

OnTrial = Callable[[Trial, Progress], None]
OnLanded = Callable[[Progress], None]
PROVERS = 8
"""Threads that wait for `full` verdicts, so that those which evaluate do not."""


def make_start(task: TaskFacts, seed: int = 0, trials: int = 200, proposer: Proposer | None = None) -> Start:
    """The start of a strategy for this task; it knows the edits of its proposer."""
    kernel = Kernel.parse(task.seed)
    tuners, own = make_seed_tuners(task, kernel, seed), kernel.digest
    proposer = proposer or Proposer()
    list_edits, gains = partial(proposer.list_edits, kernel, task), proposer.list_usual_gains()
    space, config = tuners.space_by_digest(own).values, tuners.best_config(own)
    several = sum(bool(block.functions) for block in find_blocks(kernel, space)) > 1
    return Start(own, space, config, seed, trials, list_edits, gains, several)


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
        self.task, self.proposer, self.evaluator = task, proposer, evaluator
        self.store, self.settings, self.facts = store, settings, settings.facts
        self.seed = Kernel.parse(task.seed)
        self._possible = spaces.TaskPredicate(task)
        stateless = type(proposer).tell is Proposer.tell
        self._anew = settings.anew if stateless else None  # a model cannot forget what it was told
        self._known = RunState(task)  # the trials that are stored
        self._ordering: Future | None = None
        first = settings.first
        self._near = NearEstimates(first.ordered, 2 * self.facts.window) if first and strategy.ordered else None
        self._begin(strategy, resume)
        own = self.seed.digest
        space, start = self.tuners.space_by_digest(own), self.tuners.best_config(own)
        spaces.require_possible_config(space, self.seed, self._possible, start)
        self._resumed = len(self._begun)
        self._started = time.monotonic()
        budget = settings.budget_seconds
        self._deadline = self._started + (math.inf if budget is None else budget)
        self._used_up = self._ended = False
        self._on_landed: OnLanded = lambda progress: None

    def _begin(self, strategy: Strategy, resume: Run | None, retold: bool = False) -> None:
        """Sets up the state of a run before its first trial; its stored trials will be told again."""
        self.strategy = strategy
        self.tuners = make_seed_tuners(self.task, self.seed, self.facts.seed, self._possible)
        self._begun = begin_run(self.store, self.task, self.facts, resume, retold)
        self.run_row = self._begun.run
        self._told = RunState(self.task)
        if self._near:
            self._near.restart()
        self._candidates = CandidateMaker(
            self.seed, strategy, self.proposer, self.tuners, self._told, self._begun, self.settings.starts
        )
        self._flight: deque[tuple[Candidate, Future | Trial]] = deque()  # under evaluation, or stored already

    def run(
        self,
        on_trial: OnTrial = lambda trial, progress: None,
        ending: bool = False,
        stopping: Callable[[], bool] = lambda: False,
        on_landed: OnLanded = lambda progress: None,
        say: Callable[[str], object] = lambda text: None,
    ) -> Result:
        """Runs to the end of the budget, calling on_trial after each trial in order.

        on_landed is called earlier, when trials are evaluated whose `full` verdicts may still be awaited.

        Ctrl-C, which say is told, or a true stopping(), finishes what is in flight, a second Ctrl-C drops it; either
        way the result is `interrupted` and all told trials are stored. ending: an interrupted run is the last thing
        that the process does (`Interrupts`). Raises TaskError when the seed itself is rejected, StoreError when a row
        cannot be written or a resumed run disagrees with its rows.
        """
        self._on_landed = on_landed
        pool = ThreadPoolExecutor(self.settings.workers or self.facts.window, thread_name_prefix="evaluate")
        proving = ThreadPoolExecutor(PROVERS, thread_name_prefix="prove")
        with Interrupts(ending, say) as interrupts:
            try:
                for awaited in self.steps(pool, lambda: interrupts.noted() or stopping(), on_trial, proving=proving):
                    interrupts.wait([awaited])
            except KeyboardInterrupt:
                self._ended = False
            finally:
                for executor in (pool, proving):
                    executor.shutdown(wait=False, cancel_futures=True)
                if self._ended:
                    interrupts.reset()
        return self.result(interrupts.count > 0 or (stopping() and not self._ended))

    def result(self, interrupted: bool = False) -> Result:
        """The result of the run so far."""
        known, seconds = self._known, time.monotonic() - self._started
        trials = StoredTrials(self.store, self.run_row.id, known.count)
        return Result(self.run_row, trials, known.best, known.per_shape, seconds, interrupted, self._used_up)

    def steps(
        self,
        pool: Executor,
        stopping: Callable[[], bool] = lambda: False,
        on_trial: OnTrial = lambda trial, progress: None,
        asking: Executor | None = None,
        proving: Executor | None = None,
    ) -> Iterator[Future]:
        """The run as a generator of the futures that it has to wait for, so that several runs can share one thread.

        Ends early, after what is in flight, when stopping() is true. Raises what `run` raises. asking: the executor
        that asks for candidates, if that may wait for a model (None: this thread). proving: the executor that judges
        new bests at full depth (None: pool).
        """
        while True:
            pending = PendingTrials(partial(self._settle, on_trial), proving or pool)
            try:
                yield from self._pass(pending, pool, stopping, asking)
                break
            except ProofRejected:
                assert self._anew is not None  # else no trial is told before it is proved
                for _, evaluated in self._flight:
                    if isinstance(evaluated, Future):
                        evaluated.cancel()
                self._begin(self._anew(), self.run_row, retold=True)
        self._ended = self._used_up or self._known.count >= self.facts.trials
        if self._ended:
            self.store.finish_run(self.run_row)

    def _pass(
        self, pending: PendingTrials, pool: Executor, stopping: Callable[[], bool], asking: Executor | None
    ) -> Iterator[Future]:
        """The run from its first trial on, with the stored ones told again. Raises ProofRejected."""
        flight, first, self._used_up = self._flight, self.settings.first, False
        for number in range(self.facts.trials):
            while flight and (number == 1 or len(flight) >= self.facts.window):
                yield from self._land(pending, pool)
            if stopping() or time.monotonic() >= self._deadline:
                break
            if number == 1 and first and self._ordering is not None:
                yield self._ordering
                self.tuners.add_estimates(self.seed.digest, self._ordering.result(), first.asked)
            yield from self._take_estimates(number)
            candidate = yield from self._ask(number, asking)
            if candidate is None and flight:  # which may open up more
                while flight:
                    yield from self._land(pending, pool)
                candidate = yield from self._ask(number, asking, drained=True)
            if candidate is None:
                self._used_up = True
                break
            flight.append((candidate, self._launch(pool, candidate)))
            if number == 0 and first and self.strategy.ordered and self._ordering is None:  # beside the first trial
                drawn = self.tuners.draw(self.seed.digest, first.drawn)
                self._ordering = pool.submit(first.ordered, self.seed, drawn)
        while flight:
            yield from self._land(pending, pool)
        yield from pending.settle_pending(most=0)

    def _ask(
        self, number: int, asking: Executor | None, drained: bool = False
    ) -> Generator[Future, None, Candidate | None]:
        """The candidate of this ask; the rest of the run waits for it."""
        if asking is None:
            return self._candidates.ask(number, drained)
        answer = asking.submit(self._candidates.ask, number, drained)
        yield answer
        return answer.result()

    def _launch(self, pool: Executor, candidate: Candidate) -> Future | Trial:
        if candidate.number < len(self._begun):
            return self._begun.trial(candidate.number, candidate.proposal, candidate.kernel.digest, candidate.config)
        return pool.submit(self.evaluator.evaluate, candidate.kernel, candidate.config, self._told.rival)

    def _land(self, pending: PendingTrials, pool: Executor) -> Iterator[Future]:
        """Waits for the next candidate in flight and tells its trial, which is stored once it is sure."""
        candidate, evaluated = self._flight.popleft()
        proof = None
        if isinstance(evaluated, Trial):
            trial = evaluated
        else:
            yield evaluated
            outcome = evaluated.result()
            if outcome.verdict.depth != "full" and self._told.beats(outcome):
                proof = pending.pool.submit(self.evaluator.complete, candidate.kernel, candidate.config, outcome)
                if self._anew is None:
                    yield proof
                    outcome, proof = proof.result(), None
            trial = self._make_trial(candidate, outcome)
        if trial.number >= self._known.count:
            pending.waiting.append((trial, proof))
        if not self._flight or not self._is_done(self._flight[0][1]):  # several that land at once are told of once
            self._on_landed(self._progress(self._told.count + 1))
        yield from pending.settle_pending()  # first: on being told, a proposer may refer to the trial's row
        self._tell(trial)
        self._begin_estimates(trial, pool)
        if trial.number == 0 and not trial.accepted:
            self.store.finish_run(self.run_row)
            raise TaskError(explain_wrong_seed(self.task, trial))

    def _begin_estimates(self, trial: Trial, pool: Executor) -> None:
        """Begins to estimate times around the config of a new kernel that is slower than the best, but near it."""
        best, structure = self._told.best, self._told.structures[trial.kernel]
        new = trial.proposal.kind is ProposalKind.REWRITE and structure.number == trial.number
        if not self._near or not new or not trial.score or not best or not best.score:
            return
        if NEAR[0] < trial.score / best.score <= NEAR[1]:
            around = self.tuners.list_neighbours(trial.kernel)
            self._near.begin(trial.number, structure.kernel, trial.config, around, pool)

    def _take_estimates(self, number: int) -> Iterator[Future]:
        """Gives tuners and strategy what the static model expects around the configs of new kernels."""
        for digest, config, estimated in self._near.take(number) if self._near else ():
            yield estimated
            promise = find_promise(config, estimated.result())
            if promise is not None and promise[1] < 1.0:
                self.tuners.put_first(digest, promise[0])
                self.strategy.expect(digest, promise[1])

    @staticmethod
    def _is_done(evaluated: Future | Trial) -> bool:
        return isinstance(evaluated, Trial) or evaluated.done()

    def _settle(self, on_trial: OnTrial, trial: Trial) -> None:
        """Stores and reports the next trial, which is final now."""
        if trial.number >= len(self._begun):
            structure = self._told.structures[trial.kernel]
            self.store.add_trial(self.run_row, trial, structure if structure.number == trial.number else None)
        self._known.tell(trial)
        on_trial(trial, self._progress(self._told.count))

    def _tell(self, trial: Trial) -> None:
        self._told.tell(trial)
        self.tuners.tell(trial)
        self.strategy.tell(trial)
        structure = self._told.structures[trial.kernel]
        self.proposer.tell(trial, structure.kernel, structure.parent)

    def _progress(self, landed: int) -> Progress:
        known, done = self._known, self._known.count
        seconds, cost = time.monotonic() - self._started, self.proposer.spending()
        whole = self.facts.trials, self._resumed, known.best, known.counts.copy()
        return Progress(done, *whole, seconds, cost, landed, known.reached)

    def _make_trial(self, candidate: Candidate, outcome: Outcome) -> Trial:
        kernel, score = candidate.kernel.digest, self._told.score(outcome)
        structure = self._told.structures[kernel]
        edit, rationale = structure.edit, structure.rationale
        return Trial(candidate.number, candidate.proposal, kernel, candidate.config, outcome, score, edit, rationale)
