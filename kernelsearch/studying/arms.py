"""Who proposes in a run of an arm: typed edits that all runs share, or models with budgets of the run's own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from kernelsearch import proposers
from kernelsearch.propose import engines
from kernelsearch.propose.choice import Limits
from kernelsearch.propose.operators import TypedEdits
from kernelsearch.proposers import Place
from kernelsearch.protocols import Proposer
from kernelsearch.study import Arm

IN_PROCESS = ("hf", "vllm")
"""Engines that hold a model in this process: loaded once, whatever number of runs asks them."""


class Kept:
    """An engine that several runs share: asked by one at a time, closed when the study ends and not with a run."""

    def __init__(self, inner: engines.Engine) -> None:
        self.inner, self.name, self.label = inner, inner.name, inner.label
        self.ahead, self.instant = getattr(inner, "ahead", False), getattr(inner, "instant", False)
        self._lock = threading.Lock()

    def complete(self, ask: engines.Ask) -> engines.Reply | engines.Failure:
        with self._lock:
            return self.inner.complete(ask)

    def count(self, text: str) -> int:
        return self.inner.count(text)

    def close(self) -> None:
        """Nothing: other runs may still ask."""


@dataclass
class Proposers:
    """Opens the proposers of runs. The typed edits remember what they make of the parents that runs share."""

    trials: int
    say: Callable[[str], None]
    edits: Proposer = field(default_factory=TypedEdits)
    kept: dict[str, Kept] = field(default_factory=dict)

    def opened(self, arm: Arm, place: Place) -> Proposer:
        """The proposer of one run, to be closed with `proposers.close`. Raises ModelError."""
        return proposers.opened(arm.opening, place, Limits(self.trials), self.say, self.edits, self._engine)

    def close(self) -> None:
        for engine in self.kept.values():
            engine.inner.close()

    def _engine(self, spec: str) -> engines.Engine:
        if engines.parsed(spec).kind not in IN_PROCESS:
            return engines.make(spec)
        if spec not in self.kept:
            self.kept[spec] = Kept(engines.make(spec))
        return self.kept[spec]
