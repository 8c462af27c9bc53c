"""Opens the tasks of a study, with workers and an evaluator that all runs of a task share, and times PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from kernelsearch.cluster.machines import Machines
from kernelsearch.cluster.remote_bench import RemoteBench, RemoteEvaluation, make_evaluation
from kernelsearch.core import formats
from kernelsearch.core.errors import KernelsearchError, WorkerError
from kernelsearch.core.types import TaskFacts
from kernelsearch.measure.timing.protocol import PROTOCOL, compute_spread_us
from kernelsearch.record.store import Store
from kernelsearch.search.study.definition import StudyTask
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.trial import Evaluation
from kernelsearch.trial.bench import Bench, versions
from kernelsearch.trial.own_configs import tune_seed
from kernelsearch.trial.reuse import ReuseTerms, ReusingEvaluator

MOST_OPEN = 8
"""Tasks that stay open on a GPU machine, which has the memory; opening one costs seconds."""


@dataclass
class OpenedStudyTask:
    """An opened task, the facts of its shapes and the evaluator that its runs share. users counts runs under way."""

    bench: Bench | RemoteBench
    facts: TaskFacts
    evaluation: Evaluation | RemoteEvaluation
    evaluator: ReusingEvaluator
    users: int = 0


@dataclass
class TaskOpener:
    """Opens tasks when they are needed, and closes idle ones when there are too many.

    asked is the target's name; on_gpu says whether anything is timed.
    """

    store: Store
    asked: str
    on_gpu: bool
    machines: Machines
    open: dict[str, OpenedStudyTask] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def most(self) -> int:
        return MOST_OPEN if self.on_gpu else 1

    def open_task(self, task: StudyTask) -> OpenedStudyTask:
        """The task, opened now if it is not yet open. Raises KernelsearchError."""
        if task.name not in self.open:
            idle = [name for name, one in self.open.items() if not one.users]
            for name in idle[: max(0, len(self.open) + 1 - self.most)]:
                self.open.pop(name).bench.close()
            self.open[task.name] = self._serve(task, self._open_bench(task))
        return self.open[task.name]

    def open_ahead(self, tasks: Sequence[StudyTask]) -> None:
        """Opens as many of these as may be open, side by side and before anything is timed."""
        some = list(tasks)[: self.most]
        with ThreadPoolExecutor(max(1, len(some))) as pool:
            opening = [pool.submit(self._open_bench, task) for task in some]
        for task, bench in zip(some, opening, strict=True):
            try:
                self.open[task.name] = self._serve(task, bench.result())
            except KernelsearchError as error:
                self.failed[task.name] = str(error)

    def close(self) -> None:
        for one in self.open.values():
            one.bench.close()

    def time_baselines(
        self, tasks: Sequence[StudyTask], names: Sequence[str], stopping: Callable[[], bool], say: Callable[[str], None]
    ) -> None:
        """Times PyTorch's own versions of each task by the search's protocol, once per device and versions."""
        for task in tasks:
            if task.name in self.failed:
                continue
            opened = self.open_task(task)
            known = self.store.load_baselines(opened.facts.digest, opened.bench.where, PROTOCOL, versions())
            for shape in opened.facts.shapes:
                for name in names:
                    if (shape.key, name) in known or stopping():
                        continue
                    try:
                        times, failure = opened.evaluation.time_baseline(name, shape.key), None
                    except WorkerError as error:
                        times, failure = (), str(error)[:300]
                    middle = sorted(times)[len(times) // 2] if times else None
                    measured = (PROTOCOL, versions(), middle, compute_spread_us(times), failure)
                    self.store.add_baseline(opened.facts, shape.key, opened.bench.where, name, *measured)
                    say(f"{task.name} {shape.label}: {name} {formats.format_time(middle) if middle else failure}")

    def _open_bench(self, task: StudyTask) -> Bench | RemoteBench:
        return self.machines.open_bench(task.path, self.asked)

    def _serve(self, task: StudyTask, bench: Bench | RemoteBench) -> OpenedStudyTask:
        facts = narrow_to_shapes(bench.facts, task.shapes)
        evaluation = make_evaluation(bench, facts)
        evaluator = ReusingEvaluator(evaluation, ReuseTerms.of(evaluation, facts), self.store)
        facts = tune_seed(bench, facts, evaluator, self.store.load_runs(facts.digest))
        return OpenedStudyTask(bench, facts, evaluation, evaluator)
