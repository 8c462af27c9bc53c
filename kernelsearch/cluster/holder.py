"""What runs in an actor: the benches of the run's tasks, on the actor's own GPU if it has one."""

from __future__ import annotations

import os
import platform
import threading
from dataclasses import dataclass, field, replace
from typing import Any

from kernelsearch.core.types import Config, TaskFacts
from kernelsearch.kernel.source import Kernel
from kernelsearch.kernel.targets import Target
from kernelsearch.measure.timing import nvml
from kernelsearch.measure.timing.device import LiveDevice
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder
from kernelsearch.trial.confirmation import Confirmation, ConfirmationPlan
from kernelsearch.trial.evaluation import Evaluation


@dataclass(frozen=True)
class PlacedTask:
    """A task as an actor opens it: its file (from the actor's folder), the target's name, how many compile workers.

    secret seeds the judges' inputs, on every machine with the same inputs.
    """

    file: str
    target: str
    compilers: int
    secret: int


@dataclass(frozen=True)
class SeedConfig:
    """The config of a task's own kernel: the best of its own list, over which it was tuned, if it has one."""

    config: Config = field(default_factory=dict)
    tuned: int = 0


@dataclass(frozen=True)
class TaskThere:
    """What an actor says of a task that it opened."""

    facts: TaskFacts
    target: Target
    device: LiveDevice | None
    missing_layers: tuple[str, ...]
    mode: str
    protocol: str


class BenchHolder:
    """Holds a bench for each task of the run; its methods are called by many threads of one actor."""

    def __init__(self) -> None:
        self._benches: dict[PlacedTask, Bench] = {}
        self._evaluations: dict[tuple[PlacedTask, tuple[str, ...]], Evaluation] = {}
        self._turn = threading.RLock()
        self._confirmation: Confirmation | None = None
        self._said: list[str] = []

    def open(self, task: PlacedTask) -> TaskThere:
        """Opens a task, unless it is open. Raises TaskError or TargetError, one sentence each."""
        bench = self._bench(task)
        evaluation = self._evaluation(task, tuple(s.key for s in bench.facts.shapes))
        layers = bench.missing_layers
        return TaskThere(bench.facts, bench.target, bench.device, layers, evaluation.mode, evaluation.protocol)

    def ask_bench(self, task: PlacedTask, method: str, *args: Any) -> Any:
        return getattr(self._bench(task), method)(*args)

    def ask_evaluation(
        self, task: PlacedTask, shapes: tuple[str, ...], own: SeedConfig, method: str, *args: Any
    ) -> Any:
        """The answer of a method of the task's evaluation at these shapes."""
        self._bench(task, own)
        return getattr(self._evaluation(task, shapes), method)(*args)

    def ask_confirmation(self, task: PlacedTask, own: SeedConfig, plan: ConfirmationPlan, method: str, *args: Any):
        """(The answer of a method of the task's confirmation, what it said meanwhile, the card that it was on)."""
        bench = self._bench(task, own)
        with self._turn:
            if self._confirmation is None:
                self._confirmation = Confirmation(bench, plan, self._said.append)
        self._confirmation.plan = plan
        answer = getattr(self._confirmation, method)(*args)
        said = self._said[:]
        self._said.clear()
        return answer, said, self.read_card()

    def end_confirmation(self) -> None:
        with self._turn:
            if self._confirmation is not None:
                self._confirmation.__exit__()
                self._confirmation = None

    def read_card(self) -> dict[str, Any]:
        """The node and the GPU of this actor, and the GPU's clock now."""
        bus = nvml.find_bus_id()
        reading = nvml.Monitor.open(bus).read() if bus else None
        return {"node": platform.node(), "gpu": bus, **({"sm_mhz": reading.sm_mhz} if reading else {})}

    def close(self, task: PlacedTask) -> None:
        """Closes a task's bench; the actor goes on."""
        with self._turn:
            bench = self._benches.pop(task, None)
            self._evaluations = {key: e for key, e in self._evaluations.items() if key[0] != task}
        if bench is not None:
            bench.close()

    def _bench(self, task: PlacedTask, own: SeedConfig | None = None) -> Bench:
        """The task's bench, opened if it is not; its own kernel has this config from now on."""
        with self._turn:
            if task not in self._benches:
                path = os.path.abspath(task.file)
                folder = default_folder()
                bench = Bench.open(path, task.target, task.compilers, compiled=folder)
                bench.secret = task.secret
                self._benches[task] = bench
            bench = self._benches[task]
            if own is not None and own.tuned and bench.facts.tuned != own.tuned:
                bench.facts = replace(bench.facts, config=own.config, tuned=own.tuned)
            return bench

    def _evaluation(self, task: PlacedTask, shapes: tuple[str, ...]) -> Evaluation:
        bench = self._bench(task)
        with self._turn:
            if (task, shapes) not in self._evaluations:
                self._evaluations[task, shapes] = Evaluation(bench, shapes)
            return self._evaluations[task, shapes]


def describe_kernel(kernel: Kernel, config: Config) -> tuple[str, str]:
    """The key by which one worker gets all questions about a candidate."""
    return kernel.digest, repr(sorted(config.items(), key=repr))
