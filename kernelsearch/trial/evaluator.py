"""The contract of whatever gives candidates their verdicts and times."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

from kernelsearch.core.types import Config, Measurement, Outcome, TaskFacts, Verdict
from kernelsearch.kernel.source import Kernel


class Evaluator(ABC):
    """Gives a candidate its verdict and its time. May be called from several threads at once."""

    @abstractmethod
    def evaluate(self, kernel: Kernel, config: Config, incumbent: Measurement | None = None) -> Outcome:
        """The outcome of one candidate; never raises for what a candidate did.

        incumbent is the best measurement so far, so that a clearly worse candidate can be abandoned early.
        """

    def complete(self, kernel: Kernel, config: Config, outcome: Outcome) -> Outcome:
        """The outcome with a verdict at full depth, which a search needs of each new best that only passed `screen`."""
        return outcome

    def work(self, kernel: Kernel, config: Config) -> str:
        """The digest of what a candidate makes the GPU do; empty where that is not known."""
        return ""


class OpenedBench(Protocol):
    """What is asked of a bench, on this machine or on others, by whoever does not run its workers."""

    facts: TaskFacts

    @property
    def seed(self) -> Kernel: ...
    @property
    def device(self) -> Any: ...
    @property
    def where(self) -> str: ...
    @property
    def lanes(self) -> int: ...
    @property
    def waits(self) -> bool: ...


class TaskEvaluator(Evaluator):
    """Evaluates the candidates of an opened task, wherever its bench is; says how, and estimates without a run."""

    bench: Any
    mode: str
    protocol: str

    @abstractmethod
    def estimate(self, kernel: Kernel, config: Config) -> Measurement | None:
        """The estimated times at the timed shapes; None where there are none."""

    @abstractmethod
    def verify(self, kernel: Kernel, config: Config) -> Verdict:
        """The referee alone, at full depth."""
