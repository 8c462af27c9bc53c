"""Runs a study: several runs side by side on one thread, each advanced when the result that it waits for is there."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from kernelsearch.cluster.machines import MachineOptions, open_machines
from kernelsearch.cluster.remote_bench import RemoteBench
from kernelsearch.core import formats
from kernelsearch.core.errors import IsolationError, KernelsearchError, StoreError
from kernelsearch.core.interrupts import Interrupts
from kernelsearch.core.slow_steps import Say
from kernelsearch.core.types import content_digest
from kernelsearch.propose import proposers
from kernelsearch.propose.contract import Proposer
from kernelsearch.propose.engines import EngineCache
from kernelsearch.propose.mix import RunLimits
from kernelsearch.propose.typed_edits import TypedEdits
from kernelsearch.record.rows import Run, RunFacts
from kernelsearch.record.store import Store
from kernelsearch.search.history import score_of
from kernelsearch.search.loop import Search
from kernelsearch.search.planned_run import PlannedRun, count_threads
from kernelsearch.search.study.definition import Arm, Study, StudyTask
from kernelsearch.search.study.tasks import OpenedStudyTask, TaskOpener
from kernelsearch.trial import bench as benches

SWITCH_S = 0.0005
"""Seconds until this thread gets Python's lock back from those that evaluate: it drives all runs, and a tuner's
arithmetic gives the lock away at every step. The interpreter's own 5 ms made it wait a third of a study on 16 cores.
"""


@dataclass(frozen=True)
class StudyOptions:
    """The command's options, as the command line names them. jobs is how many runs share the machine at a time."""

    db: str | None = None
    target: str = "auto"
    jobs: int | None = None
    budget_seconds: float | None = None
    report: bool = False
    as_json: bool = False
    quiet: bool = False
    require_isolation: bool = False
    gpus: str = ""
    ray: str = ""
    device: str = ""


@dataclass
class _Active:
    """A run under way: its future that is awaited, and the facts of its last message.

    asking is a thread of its own where it may wait for a model, so that the other runs do not wait too.
    """

    search: Search
    proposer: Proposer
    steps: Iterator[Future]
    label: str
    opened: OpenedStudyTask
    started: float
    asking: ThreadPoolExecutor | None = None
    awaited: Future | None = None


@dataclass
class StudyRunner:
    """Runs what is left of a study."""

    study: Study
    store: Store
    options: StudyOptions
    say: Say
    failed: dict[str, str] = field(default_factory=dict)
    isolation_said: bool = False
    began: float = field(default_factory=time.monotonic)

    def run(self) -> int:
        """Runs them all; returns how many runs failed. Raises RunBusy when another process runs this study."""
        machines = MachineOptions(self.options.gpus, self.options.ray, self.options.device)
        self.store.claim_study(self.study.name)
        target, device = benches.choose_target(self.options.target)
        self.edits, self.engines = TypedEdits(), EngineCache()  # for all runs
        sys.setswitchinterval(SWITCH_S)
        budget = self.options.budget_seconds
        deadline = self.began + (math.inf if budget is None else budget)
        with ExitStack() as stack, Interrupts(True, self.say) as self.interrupts:
            stack.callback(self.engines.close)
            opened = stack.enter_context(open_machines(machines, [t.path for t in self.study.tasks], self.say))
            on_gpu = opened.measures(device)
            self.tasks = TaskOpener(self.store, self.options.target, on_gpu, opened, failed=self.failed)
            stack.callback(self.tasks.close)
            jobs = self.options.jobs or (len(self.study.arms) if on_gpu else 1)
            name = device.name if device else "the cluster"
            where = f"measuring on {name}" if on_gpu else f"no GPU here: times are estimated for {target.name}"
            runs = len(self.study.tasks) * len(self.study.arms) * len(self.study.seeds)
            self.say(f"{self.study.name}: {runs} runs of {self.study.trials} trials; {where}")
            threads = jobs * count_threads(self.study.window, on_gpu or opened.crew is not None)
            pool = ThreadPoolExecutor(threads, thread_name_prefix="evaluate")
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            self.stopping = lambda: self.interrupts.noted() or time.monotonic() >= deadline
            try:
                if on_gpu:
                    todo = (task for task, arm, seed in self._list_runs() if not self._is_done(task, arm, seed))
                    self.tasks.open_ahead(list(dict.fromkeys(todo)))
                self._interleave(pool, jobs)
                if on_gpu and not self.stopping():
                    self.tasks.time_baselines(self.study.tasks, self.study.baselines, self.stopping, self.say)
            except KeyboardInterrupt:
                self.say("interrupted; the same command goes on from here")
        for label, reason in self.failed.items():
            self.say(f"{label} could not be run: {reason}")
        return len(self.failed)

    def _interleave(self, pool: ThreadPoolExecutor, jobs: int) -> None:
        """Keeps `jobs` runs under way; each is advanced when the result that it waits for is there."""
        waiting, used_up = self._list_runs(), False
        active: list[_Active] = []
        while True:
            while len(active) < jobs and not used_up and not self.stopping():
                planned = next(waiting, None)
                used_up = planned is None
                begun = self._begin(*planned, pool) if planned else None
                active += [begun] if begun and self._advance(begun) else []
            active = [a for a in active if self._advance(a)]
            if len(active) < jobs and not used_up and not self.stopping():
                continue
            if not active:
                return
            self.interrupts.wait([a.awaited for a in active if a.awaited], FIRST_COMPLETED)

    def _list_runs(self) -> Iterator[tuple[StudyTask, Arm, int]]:
        """The runs, ordered so that whole comparisons finish first."""
        return ((task, arm, seed) for seed, task, arm in product(self.study.seeds, self.study.tasks, self.study.arms))

    def _begin(self, task: StudyTask, arm: Arm, seed: int, pool: ThreadPoolExecutor) -> _Active | None:
        """Begins a run; None when it is done already or cannot be done."""
        label = f"{task.name} {arm.name} seed {seed}"
        if task.name in self.failed:
            return None
        try:
            if self._is_done(task, arm, seed):
                return None
            opened = self.tasks.open_task(task)
            self._check_isolation(opened.bench)
            search, proposer = self._set_up(opened, arm, seed)
        except (StoreError, IsolationError):
            raise
        except KernelsearchError as error:
            self.failed[task.name if task.name not in self.tasks.open else label] = str(error)
            return None
        opened.users += 1
        asking = ThreadPoolExecutor(1, thread_name_prefix="ask") if proposer.may_wait() else None
        steps = search.steps(pool, self.stopping, asking=asking)
        return _Active(search, proposer, steps, label, opened, time.monotonic(), asking)

    def _check_isolation(self, bench: benches.Bench | RemoteBench) -> None:
        """Says once what is missing. Raises IsolationError."""
        said, self.isolation_said = self.isolation_said, True
        bench.check_isolation((lambda text: None) if said else self.say, self.options.require_isolation)

    def _advance(self, active: _Active) -> bool:
        """Moves a run on as far as it goes without waiting. Returns whether it is still under way."""
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
        if active.asking:
            active.asking.shutdown(wait=False)
        active.proposer.end()
        active.proposer.close()
        self.say(self._summarise(active))
        return False

    def _summarise(self, active: _Active) -> str:
        result = active.search.result()
        reused = sum(1 for t in result.trials if t.outcome.measured_by)
        gain = f"{1 / score_of(result.best):.3f}x" if result.best else "nothing accepted"
        spent = formats.format_duration(time.monotonic() - active.started)
        ended = "" if result.used_up or len(result.trials) >= self.study.trials else ", unfinished"
        cost = f", {spending}" if (spending := active.proposer.spending()) else ""
        return f"{active.label}: {gain}, {len(result.trials)} trials ({reused} known) in {spent}{cost}{ended}"

    def _set_up(self, opened: OpenedStudyTask, arm: Arm, seed: int) -> tuple[Search, Proposer]:
        task = next(t for t in self.study.tasks if os.path.abspath(t.path) == opened.facts.path)
        evaluation, facts, study = opened.evaluation, opened.facts, self.study
        name = Path(arm.strategy).stem if arm.strategy.endswith(".py") else arm.strategy
        settings = self._settings(task, arm)
        plan = PlannedRun(
            evaluation, facts, arm.strategy, name, arm.model, seed, study.window, study.trials, arm.params, settings
        )
        place = proposers.load_machine_facts(self.store, opened.facts, opened.bench.where, opened.bench.target)
        limits = RunLimits(study.trials)
        edits = None if arm.model.specs else self.edits  # runs with a model may ask on threads of their own
        proposer = proposers.open_proposer(arm.opening, place, limits, self.say, edits, self.engines.engine)
        resumed = _find_stored(self.store, opened.facts.digest, plan.facts)
        return plan.set_up(proposer, opened.evaluator, self.store, resumed), proposer

    def _is_done(self, task: StudyTask, arm: Arm, seed: int) -> bool:
        """Whether the database has the whole run; asked before the task is opened, which takes seconds."""
        own = self._settings(task, arm).items()
        return any(
            run.finished is not None
            and run.facts.trials >= self.study.trials
            and own <= run.facts.settings.items()
            and (run.facts.proposer, run.facts.seed) == (arm.model.name, seed)
            for run in self.store.load_runs()
        )

    def _settings(self, task: StudyTask, arm: Arm) -> dict[str, Any]:
        return {"study": self.study.name, "arm": arm.name, "params": dict(arm.params), "task": _digest(task)}


def _digest(task: StudyTask) -> str:
    """The digest of a task's file and of the shapes that are run."""
    return content_digest(Path(task.path).read_text(errors="replace"), *task.shapes)


def _find_stored(store: Store, task: str, facts: RunFacts) -> Run | None:
    """This run in the database, unfinished; None for a new one."""
    wanted = (dict(facts.settings), facts.proposer, facts.seed)
    runs = store.load_runs(task)
    return next((r for r in runs if (dict(r.facts.settings), r.facts.proposer, r.facts.seed) == wanted), None)
