"""`study`: runs every task with every arm and every seed at equal budget, several runs at a time, in one database.

Seeds come first, then tasks, then arms, so that a study that is cut short has whole comparisons. A finished run is
not run again, an unfinished one goes on; what one run has measured no other measures again (`reuse.py`), while each
trial still counts. The report is made from the database alone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from kernelsearch import strategies, study
from kernelsearch.errors import KernelsearchError, StoreError, StudyError, WorkerError
from kernelsearch.interrupts import Interrupts
from kernelsearch.measure.protocol import PROTOCOL, spread_us
from kernelsearch.propose.operators import TypedEdits
from kernelsearch.protocols import Proposer
from kernelsearch.record.rows import Run, RunFacts
from kernelsearch.record.store import Store
from kernelsearch.report import study as report
from kernelsearch.report import words
from kernelsearch.reuse import Reusing, terms
from kernelsearch.search import Search, Settings, start_for
from kernelsearch.shapes import narrowed
from kernelsearch.space import known_constraints
from kernelsearch.study import Arm, Study, StudyTask
from kernelsearch.trial import Evaluation
from kernelsearch.types import TaskFacts, content_digest
from kernelsearch.worker import bench as benches
from kernelsearch.worker.bench import Bench
from kernelsearch.worker.cache import default_folder


PROPOSERS: dict[str, Callable[[], Proposer]] = {"edits": TypedEdits}
"""Proposers without a model; one of each serves all runs, and remembers what edits make of the parents that they share."""


SWITCH_S = 0.0005
"""How soon this thread gets Python's lock back from those that evaluate: it drives all runs, and a tuner's arithmetic
gives the lock away at every step. The interpreter's own 5 ms made it wait a third of a study on 16 cores."""

MOST_OPEN = 8
"""Tasks that stay open on a GPU, which has the memory; opening one costs seconds."""


@dataclass(frozen=True)
class Options:
    """The command's options, as the command line names them. jobs is how many runs share the machine at a time."""

    db: str | None = None
    target: str = "auto"
    jobs: int | None = None
    budget_seconds: float | None = None
    report: bool = False
    as_json: bool = False
    quiet: bool = False


def main(path: str, options: Options) -> int:
    """Runs what is left of a study and prints its report. Returns the exit code; raises KernelsearchError for misuse."""
    told = None if _is_database(path) else study.read(path, tuple(PROPOSERS))
    db = options.db or (path if told is None else str(Path(path).with_suffix(".db")))
    if told is None and not options.report:
        raise StudyError(f"{path} is a database: give the study's .toml to run it, or --report for its report")
    failed = 0
    if not options.report:
        say = (lambda text: None) if options.quiet else (lambda text: print(text, file=sys.stderr, flush=True))
        with Store.open(db) as store:
            failed = _Running(told, store, options, say).run()
    with Store.open(db, write=False) as store:
        found = report.facts(store, told.name if told else None, *_order(told))
    print(json.dumps(found, indent=None, separators=(",", ":")) if options.as_json else report.as_markdown(found), end="")
    return 1 if failed else 0


def _is_database(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(15) == b"SQLite format 3"
    except OSError:
        return False


def _order(told: Study | None) -> tuple[tuple[str, ...], tuple[int, ...]]:
    return (tuple(a.name for a in told.arms), told.checkpoints) if told else ((), ())


@dataclass
class _Open:
    """An opened task: the facts of its shapes, and the evaluator that all its runs share."""

    bench: Bench
    facts: TaskFacts
    evaluation: Evaluation
    evaluator: Reusing
    users: int = 0


@dataclass
class _Active:
    """A run under way: what it waits for, and what to say when it ends."""

    search: Search
    steps: Iterator[Future]
    label: str
    opened: _Open
    started: float
    awaited: Future | None = None


@dataclass
class _Running:
    """One process's share of a study."""

    study: Study
    store: Store
    options: Options
    say: Callable[[str], None]
    opened: dict[str, _Open] = field(default_factory=dict)
    proposers: dict[str, Proposer] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    gpu: threading.Lock = field(default_factory=threading.Lock)
    began: float = field(default_factory=time.monotonic)

    def run(self) -> int:
        """How many runs could not be done."""
        self.target, self.device = benches.choose_target(self.options.target)
        jobs = self.options.jobs or (len(self.study.arms) if self.device else 1)
        self.kept = MOST_OPEN if self.device else 1
        sys.setswitchinterval(SWITCH_S)
        where = f"measuring on {self.device.name}" if self.device else f"no GPU here: times are estimated for {self.target.name}"
        runs = len(self.study.tasks) * len(self.study.arms) * len(self.study.seeds)
        self.say(f"{self.study.name}: {runs} runs of {self.study.trials} trials; {where}")
        pool = ThreadPoolExecutor(jobs * self._threads(), thread_name_prefix="evaluate")
        with ExitStack() as stack, Interrupts(ending=True) as interrupts:
            stack.callback(self._close_all)
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            self.stopping = lambda: interrupts.count > 0 or self._out_of_time()
            try:
                if self.device:
                    self._open_ahead()
                self._interleaved(pool, jobs)
                if self.device and not self.stopping():
                    self._baselines()
            except KeyboardInterrupt:
                self.say("interrupted; the same command goes on from here")
        for label, reason in self.failed.items():
            self.say(f"{label} could not be run: {reason}")
        return len(self.failed)

    def _threads(self) -> int:
        cores = len(os.sched_getaffinity(0))
        return self.study.window if self.device else min(self.study.window, 2 + cores)

    def _out_of_time(self) -> bool:
        budget = self.options.budget_seconds
        return budget is not None and time.monotonic() - self.began >= budget

    # ------------------------------------------------------------ runs

    def _interleaved(self, pool: ThreadPoolExecutor, jobs: int) -> None:
        """Keeps `jobs` runs under way; each is advanced when what it waits for is there."""
        waiting, used_up = self._planned(), False
        active: list[_Active] = []
        while True:
            while len(active) < jobs and not used_up and not self.stopping():
                planned = next(waiting, None)
                used_up = planned is None
                begun = self._begun(*planned, pool) if planned else None
                active += [begun] if begun and self._advanced(begun) else []
            active = [a for a in active if self._advanced(a)]
            if len(active) < jobs and not used_up and not self.stopping():
                continue
            if not active:
                return
            wait([a.awaited for a in active if a.awaited], return_when=FIRST_COMPLETED)

    def _planned(self) -> Iterator[tuple[StudyTask, Arm, int]]:
        for seed in self.study.seeds:
            for task in self.study.tasks:
                for arm in self.study.arms:
                    yield task, arm, seed

    def _begun(self, task: StudyTask, arm: Arm, seed: int, pool: ThreadPoolExecutor) -> _Active | None:
        """The run under way, None when it is done already or cannot be done."""
        label = f"{task.name} {arm.name} seed {seed}"
        if task.name in self.failed:
            return None
        try:
            if self._done_before(task, arm, seed):
                return None
            opened = self._opened(task)
            search = self._search(opened, arm, seed)
        except StoreError:
            raise
        except KernelsearchError as error:
            self.failed[task.name if task.name not in self.opened else label] = str(error)
            return None
        opened.users += 1
        return _Active(search, search.steps(pool, self.stopping), label, opened, time.monotonic())

    def _advanced(self, active: _Active) -> bool:
        """Moves a run on as far as it goes without waiting; whether it is still under way."""
        while active.awaited is None or active.awaited.done():
            try:
                active.awaited = next(active.steps)
            except StopIteration:
                break
            except StoreError:
                raise
            except KernelsearchError as error:
                self.failed[active.label] = str(error)
                break
        else:
            return True
        active.opened.users -= 1
        self.say(self._said(active))
        return False

    def _said(self, active: _Active) -> str:
        result = active.search.result()
        reused = sum(1 for t in result.trials if t.outcome.measured_by)
        gain = f"{1 / result.best.score:.3f}x" if result.best else "nothing accepted"
        spent = words.duration(time.monotonic() - active.started)
        ended = "" if result.used_up or len(result.trials) >= self.study.trials else ", unfinished"
        return f"{active.label}: {gain}, {len(result.trials)} trials ({reused} known) in {spent}{ended}"

    def _search(self, opened: _Open, arm: Arm, seed: int) -> Search:
        facts = opened.facts
        told = RunFacts(
            strategy=_plain(arm.strategy), proposer=arm.proposer, seed=seed, window=self.study.window,
            trials=self.study.trials, target=self.device.name if self.device else self.target.name,
            versions=benches.versions(), settings=_settings(self.study, arm, facts),
        )  # fmt: skip
        strategy = strategies.make(arm.strategy, start_for(facts, seed, self.study.trials), **(arm.params or {}))
        proposer = self.proposers.setdefault(arm.proposer, PROPOSERS[arm.proposer]())
        settings = Settings(told, possible=known_constraints(facts))
        resumed = _stored(self.store, facts.digest, told)
        return Search(facts, strategy, proposer, opened.evaluator, self.store, settings, resumed)

    def _done_before(self, task: StudyTask, arm: Arm, seed: int) -> bool:
        """Whether the database has this run whole; asked before the task is opened, which takes seconds."""
        for run in _of_study(self.store, self.study.name):
            told = run.facts.settings
            same = (told["task"], told["arm"], told["params"], run.facts.seed) == (
                _identity(task), arm.name, _params(arm), seed
            )  # fmt: skip
            if same and run.finished is not None and run.facts.trials >= self.study.trials:
                return True
        return False

    # ------------------------------------------------------------ tasks

    def _open_ahead(self) -> None:
        """Opens the tasks that have runs to do, side by side and before anything is timed."""
        todo = dict.fromkeys(t for t, arm, seed in self._planned() if not self._done_before(t, arm, seed))
        tasks = list(todo)[: self.kept]
        with ThreadPoolExecutor(max(1, len(tasks))) as pool:
            benches = [pool.submit(self._bench, task) for task in tasks]
        for task, bench in zip(tasks, benches, strict=True):
            try:
                self.opened[task.name] = self._served(task, bench.result())
            except KernelsearchError as error:
                self.failed[task.name] = str(error)

    def _opened(self, task: StudyTask) -> _Open:
        if task.name not in self.opened:
            idle = [name for name, one in self.opened.items() if not one.users]
            for name in idle[: max(0, len(self.opened) + 1 - self.kept)]:
                self.opened.pop(name).bench.workplace.close()
            self.opened[task.name] = self._served(task, self._bench(task))
        return self.opened[task.name]

    def _bench(self, task: StudyTask) -> Bench:
        return Bench.open(task.path, self.options.target, compiled=default_folder(), gpu=self.gpu)

    def _served(self, task: StudyTask, bench: Bench) -> _Open:
        facts = narrowed(bench.facts, task.shapes)
        evaluation = Evaluation(bench, tuple(s.key for s in facts.shapes))
        target = self.device.name if self.device else self.target.name
        known = Reusing(evaluation, terms(evaluation, facts, target, benches.versions()), self.store)
        return _Open(bench, facts, evaluation, known)

    def _close_all(self) -> None:
        for one in self.opened.values():
            one.bench.workplace.close()

    def _baselines(self) -> None:
        """Times PyTorch's own versions of each task by the search's protocol, once per device and versions."""
        for task in self.study.tasks:
            if task.name in self.failed:
                continue
            opened = self._opened(task)
            known = self.store.baselines(opened.facts.digest, self.device.name, PROTOCOL, benches.versions())
            for shape in opened.facts.shapes:
                for name in self.study.baselines:
                    if (shape.key, name) in known or self.stopping():
                        continue
                    times, failure = (), None
                    try:
                        times = opened.evaluation.baseline(name, shape.key)
                    except WorkerError as error:
                        failure = str(error)[:300]
                    middle = sorted(times)[len(times) // 2] if times else None
                    self.store.add_baseline(
                        opened.facts, shape.key, self.device.name, name, PROTOCOL, benches.versions(),
                        middle, spread_us(times), failure,
                    )  # fmt: skip
                    self.say(f"{task.name} {shape.label}: {name} {words.time(middle) if middle else failure}")


def _plain(strategy: str) -> str:
    return Path(strategy).stem if strategy.endswith(".py") else strategy


def _params(arm: Arm) -> dict:
    return dict(arm.params or {})


def _identity(task: StudyTask) -> str:
    """The digest of a task's file and of the shapes that are run."""
    return content_digest(Path(task.path).read_text(errors="replace"), *task.shapes)


def _settings(told: Study, arm: Arm, facts: TaskFacts) -> dict:
    task = next(t for t in told.tasks if os.path.abspath(t.path) == facts.path)
    shapes = [s.key for s in facts.shapes]
    return {"study": told.name, "arm": arm.name, "params": _params(arm), "task": _identity(task), "shapes": shapes}


def _of_study(store: Store, name: str) -> list[Run]:
    return [r for r in store.runs() if r.facts.settings.get("study") == name]


def _stored(store: Store, task: str, told: RunFacts) -> Run | None:
    """This run as the database has it, unfinished; None for a new one."""
    for run in store.runs(task):
        if dict(run.facts.settings) == dict(told.settings) and run.facts.seed == told.seed:
            return run
    return None
