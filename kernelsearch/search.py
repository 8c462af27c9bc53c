"""The search loop: ask a strategy, make the candidate, have it evaluated, tell and store it, in ask order.

Up to `window` candidates are in flight. Ask n has seen exactly the trials up to n - window (and always
the seed, whose time is the unit of every score), so that a run is the same run on any number of workers,
and a killed one continues by asking and telling its stored trials again.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace

from kernelsearch import space as spaces
from kernelsearch.errors import StoreError, StrategyError, TaskError
from kernelsearch.interrupts import Interrupts
from kernelsearch.protocols import Evaluator, Proposer, Request, Start, Strategy
from kernelsearch.record.rows import Run, RunFacts, Structure, geometric_mean
from kernelsearch.record.store import Store
from kernelsearch.source import Kernel
from kernelsearch.tune import nearest, seed_tuners, space_of, start_of
from kernelsearch.types import Config, Outcome, Proposal, ProposalKind, TaskFacts, Trial, config_key


@dataclass(frozen=True)
class Settings:
    """facts are what the run is repeated from and are stored; the rest may differ on resume.

    workers is how many threads call the evaluator, None for as many as the window; possible says which
    configs are worth a trial, None for what is known of the task.
    """

    facts: RunFacts
    workers: int | None = None
    budget_seconds: float | None = None
    possible: spaces.Predicate | None = None


@dataclass(frozen=True)
class Progress:
    """How far a run is, after one more trial. seconds counts this process only; replayed trials cost none.

    spent is what models have cost, in words; empty without one.
    """

    done: int
    total: int
    replayed: int
    best: Trial | None
    counts: Counter[str]
    seconds: float
    spent: str = ""


@dataclass(frozen=True)
class Result:
    """How a run ended. per_shape has the best trial of every timed shape; used_up: no candidate was left."""

    run: Run
    trials: tuple[Trial, ...]
    best: Trial | None
    per_shape: dict[str, Trial]
    seconds: float
    interrupted: bool = False
    used_up: bool = False


@dataclass(frozen=True)
class _Candidate:
    proposal: Proposal
    kernel: Kernel
    config: Config
    structure: Structure | None


@dataclass(frozen=True)
class _Flying:
    """A candidate under evaluation, or one whose trial is stored already."""

    number: int
    candidate: _Candidate
    evaluated: Future | Trial


@dataclass
class _State:
    """What has been told, and what follows from it."""

    trials: list[Trial] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    structures: dict[str, Structure] = field(default_factory=dict)
    by_kernel: dict[str, Trial] = field(default_factory=dict)
    best: Trial | None = None
    per_shape: dict[str, Trial] = field(default_factory=dict)

    def tell(self, trial: Trial) -> None:
        self.trials.append(trial)
        self.counts[trial.outcome.verdict.word.value] += 1
        if not trial.accepted or trial.outcome.measurement.abandoned:
            return
        if self.best is None or trial.score < self.best.score:
            self.best = trial
        if trial.kernel not in self.by_kernel or trial.score < self.by_kernel[trial.kernel].score:
            self.by_kernel[trial.kernel] = trial
        for shape in trial.outcome.measurement.times:
            known = self.per_shape.get(shape.shape)
            if known is None or shape.time_us < known.outcome.measurement.time_us(shape.shape):
                self.per_shape[shape.shape] = trial


def start_for(task: TaskFacts, seed: int = 0, trials: int = 200) -> Start:
    """What a strategy for this task is made with."""
    kernel = Kernel.parse(task.seed)
    tuners = seed_tuners(task, kernel, seed)
    return Start(kernel.digest, tuners.space(kernel.digest).values, tuners.best(kernel.digest), seed, trials)


def _differences(facts: RunFacts, run: Run) -> list[str]:
    """Names of facts that a resume needs equal and that are not; the budget and the versions may differ."""
    names = [n for n in facts.__dataclass_fields__ if n not in ("trials", "versions")]
    return [n for n in names if getattr(facts, n) != getattr(run.facts, n)]


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
        self.run_row = self._begun(resume)
        self._stored = store.trials(resume.id) if resume else []
        self._stored_structures = {s.number: s for s in store.structures(resume.id).values()} if resume else {}
        self._as_stored = self.run_row.extended
        self._state = _State()
        self._started = time.monotonic()
        self._used_up = self._ended = False

    def run(
        self, on_trial: Callable[[Trial, Progress], None] = lambda trial, progress: None, ending: bool = False
    ) -> Result:
        """Runs to the end of the budget, calling on_trial after each trial in order.

        Ctrl-C finishes what is in flight, a second one drops it; either way the result says `interrupted`
        and all told trials are stored. ending: an interrupted run is the last thing that the process does (`Interrupts`). Raises TaskError when the seed itself is rejected, StoreError when a
        row cannot be written or a resumed run disagrees with its rows.
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
        state, seconds = self._state, time.monotonic() - self._started
        return Result(
            self.run_row, tuple(state.trials), state.best, state.per_shape, seconds, interrupted, self._used_up
        )  # fmt: skip

    def steps(
        self, pool: Executor, stopping: Callable[[], bool] = lambda: False,
        on_trial: Callable[[Trial, Progress], None] = lambda trial, progress: None,
    ) -> Iterator[Future]:
        """The run as a generator that yields each future that it has to wait for: several runs can share one thread.

        Ends early, with what is in flight, when stopping() says so. Raises what `run` raises.
        """
        flight: deque[_Flying] = deque()
        for number in range(self.facts.trials):
            while flight and (number == 1 or len(flight) >= self.facts.window):
                yield from self._land(flight.popleft(), pool, on_trial)
            if stopping() or self._out_of_time():
                break
            candidate = self._ask(number)
            if candidate is None:
                while flight:  # what is in flight may open up more
                    yield from self._land(flight.popleft(), pool, on_trial)
                candidate = self._ask(number)
            if candidate is None:
                self._used_up = True
                break
            flight.append(_Flying(number, candidate, self._launched(pool, number, candidate)))
        while flight:
            yield from self._land(flight.popleft(), pool, on_trial)
        self._ended = self._used_up or len(self._state.trials) >= self.facts.trials
        if self._ended:
            self.store.finish_run(self.run_row)

    def _begun(self, resume: Run | None) -> Run:
        if resume is None:
            return self.store.add_run(self.task, self.facts)
        if resume.task != self.task.digest:
            raise StoreError(f"run {resume.id} cannot be resumed: the task file has changed since; start a new run")
        for name in _differences(self.facts, resume):
            raise StoreError(
                f"run {resume.id} cannot be resumed with {name} {getattr(self.facts, name)!r}: it has "
                f"{getattr(resume.facts, name)!r}; give that, or start a new run"
            )
        if self.facts.trials != resume.facts.trials:
            resume = self.store.set_budget(resume, self.facts.trials)
        return replace(resume, facts=self.facts)

    def _ask(self, number: int) -> _Candidate | None:
        if number == 0:
            config = self.tuners.best(self.seed.digest)
            self.tuners.reserve(self.seed.digest, config)
            self._state.structures[self.seed.digest] = structure = Structure(self.seed, 0)
            return _Candidate(Proposal(ProposalKind.SEED), self.seed, config, structure)
        # Of a run that was given more trials the earlier proposals stand: what a strategy asks may depend on its budget.
        proposal = self._stored[number].proposal if number < self._as_stored else self.strategy.ask(number)
        if proposal is None:
            return None
        unknown = [p for p in proposal.parents if p not in self.tuners]
        if unknown:
            raise StrategyError(f"{self.facts.strategy} proposed a parent that is no kernel of this run: {unknown[0]}")
        return next((c for c in self._attempts(number, proposal) if c), None)

    def _attempts(self, number: int, proposal: Proposal) -> Iterator[_Candidate | None]:
        """What was proposed, then what comes nearest to it, until one gives a candidate."""
        parent = proposal.parents[0] if proposal.parents else self.seed.digest
        if proposal.kind is ProposalKind.REWRITE:
            yield self._rewrite(number, proposal, parent)
        yield self._retune(number, proposal, parent, proposal.config)
        ranked = sorted(self._state.by_kernel.values(), key=lambda t: (t.score, t.number))
        others = [t.kernel for t in ranked if t.kernel != parent]
        for digest in others:
            yield self._retune(number, proposal, digest)
        if proposal.kind is not ProposalKind.REWRITE and getattr(self.strategy, "rewrites", True):
            yield self._rewrite(number, proposal, parent)
        if getattr(self.strategy, "rewrites", True):
            for digest in others:
                yield self._rewrite(number, proposal, digest)

    def _retune(
        self, number: int, proposal: Proposal, digest: str, explicit: Config | None = None
    ) -> _Candidate | None:
        if explicit is None:
            config = self.tuners.ask(digest, number, proposal.sampler)
        else:
            space = self.tuners.space(digest).values  # what suited another kernel may lie outside this one's space
            wanted = {name: nearest(space.get(name, ()), value) for name, value in explicit.items()}
            config = self.tuners.take(digest, {**self.tuners.best(digest), **wanted})
        return _Candidate(proposal, self.tuners.kernel(digest), config, None) if config is not None else None

    def _rewrite(self, number: int, proposal: Proposal, parent: str) -> _Candidate | None:
        structure = self._proposed(number, proposal, parent)
        if structure is None or structure.kernel.digest in self._state.structures:
            return None
        kernel, parent = structure.kernel, structure.parent
        space = space_of(kernel, self.tuners.space(parent).values)
        written_over = self.tuners.kernel(parent).config or self.task.config
        self.tuners.add(kernel, space, start_of(kernel, self.tuners.best(parent), space, written_over))
        self._state.structures[kernel.digest] = structure
        config = self.tuners.ask(kernel.digest, number)
        if config is None:  # nothing of its space is thought possible: let the compiler say so
            config = self.tuners.best(kernel.digest)
            self.tuners.reserve(kernel.digest, config)
        return _Candidate(proposal, kernel, config, structure)

    def _proposed(self, number: int, proposal: Proposal, parent: str) -> Structure | None:
        """The proposer's answer; that of a stored trial is in the record, since a model may not repeat itself."""
        if number < len(self._stored):
            stored = self._stored_structures.get(number)
            return stored if stored and stored.parent in self.tuners else None
        weights = getattr(self.strategy, "weights", dict)()
        known = self._state.by_kernel.get(parent)
        hints, seen = known.outcome.hints if known else (), frozenset(self._state.structures)
        request = Request(self.tuners.kernel(parent), self.task, seen, proposal.edit, hints, weights, number, known)
        made = self.proposer.propose(request, random.Random(f"{self.facts.seed}/{number}/proposer"))
        return Structure(made.kernel, number, made.parent or parent, made.edit, made.rationale) if made else None

    def _launched(self, pool: Executor, number: int, candidate: _Candidate) -> Future | Trial:
        if number >= len(self._stored):
            incumbent = self._state.best.outcome.measurement if self._state.best else None
            return pool.submit(self.evaluator.evaluate, candidate.kernel, candidate.config, incumbent)
        stored = self._stored[number]
        same = (
            stored.number == number
            and stored.kernel == candidate.kernel.digest
            and config_key(stored.config) == config_key(candidate.config)
            and stored.proposal == candidate.proposal
        )
        if not same:
            raise StoreError(
                f"run {self.run_row.id} cannot be resumed: its trial {number} was kernel {stored.kernel} with "
                f"{config_key(stored.config)}, but this search asks for kernel {candidate.kernel.digest} with "
                f"{config_key(candidate.config)}; the strategy or the package has changed, start a new run"
            )
        return stored

    def _land(self, flying: _Flying, pool: Executor, on_trial: Callable) -> Iterator[Future]:
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
        self._state.tell(trial)
        self.tuners.tell(trial)
        self.strategy.tell(trial)
        if hasattr(self.proposer, "tell"):
            made = self._state.structures[trial.kernel]
            self.proposer.tell(trial, made.kernel, made.parent)
        done, state, spent = len(self._state.trials), self._state, time.monotonic() - self._started
        replayed = min(done, len(self._stored))
        cost = getattr(self.proposer, "spending", str)()
        on_trial(trial, Progress(done, self.facts.trials, replayed, state.best, state.counts.copy(), spent, cost))
        if number == 0 and not trial.accepted:
            self.store.finish_run(self.run_row)
            raise TaskError(self._seed_is_wrong(trial))

    def _needs_full(self, outcome: Outcome) -> bool:
        """Whether this would be the new best and has only passed the `screen`."""
        if outcome.measurement is None or outcome.measurement.abandoned or outcome.verdict.depth == "full":
            return False
        beats = self._state.best is None or self._score(outcome) < self._state.best.score
        return beats and hasattr(self.evaluator, "complete")

    def _judged(self, number: int, candidate: _Candidate, outcome: Outcome) -> Trial:
        kernel, score = candidate.kernel.digest, self._score(outcome)
        made = self._state.structures[kernel]
        return Trial(number, candidate.proposal, kernel, candidate.config, outcome, score, made.edit, made.rationale)

    def _score(self, outcome: Outcome) -> float | None:
        """The geometric mean of time / seed time over the timed shapes.

        An abandoned measurement may lack shapes; it was given up for being slower than the incumbent, so
        that its score is at least the incumbent's, and missing shapes count as its worst one.
        """
        if outcome.measurement is None:
            return None
        unit = self._state.trials[0].outcome.measurement if self._state.trials else outcome.measurement
        times = [(outcome.measurement.time_us(t.shape), t.time_us) for t in unit.times]
        ratios = [time / base for time, base in times if time is not None]
        ratios += [max(ratios, default=1.0)] * (len(times) - len(ratios))
        score = geometric_mean(ratios)
        if score is None:
            raise TaskError(f"{self.task.name} has no timed shape to compare kernels on")
        if outcome.measurement.abandoned and self._state.best:
            return max(score, self._state.best.score)
        return score

    def _seed_is_wrong(self, trial: Trial) -> str:
        verdict = trial.outcome.verdict
        key = verdict.detail.get("shape")
        label = next((s.label for s in (*self.task.shapes, *self.task.test_shapes) if s.key == key), key)
        where = f" on {label}" if label else ""
        much = f" (its error is {verdict.error_ratio:.3g} times what is allowed)" if verdict.error_ratio else ""
        said = f"{verdict.word.value}, {verdict.reason}{much}"
        return f"the seed kernel of {self.task.name} is itself rejected{where}: {said}"

    def _out_of_time(self) -> bool:
        budget = self.settings.budget_seconds
        return budget is not None and time.monotonic() - self._started >= budget
