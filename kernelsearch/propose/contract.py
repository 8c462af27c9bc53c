"""What a proposer is asked for and what it gives."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from kernelsearch.core.types import Hint, TaskFacts, Trial
from kernelsearch.kernel.source import Kernel


@dataclass(frozen=True)
class Rewrite:
    """A new structure: the kernel (its config is where tuning starts), the edit's name, one sentence of why.

    parent is the digest of the kernel that it was made from, where that is not the request's (a repair).
    """

    kernel: Kernel
    edit: str
    rationale: str
    parent: str | None = None


@dataclass(frozen=True)
class Request:
    """What a proposer is asked for: a rewrite of parent that is not in seen.

    edit asks for one edit by name; weights are relative odds of the edits (absent: 1), as hints
    and the run's own gains set them. number is the ask; trial is the parent's best trial so far.
    """

    parent: Kernel
    task: TaskFacts
    seen: Container[str] = ()
    edit: str | None = None
    hints: tuple[Hint, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    number: int = 0
    trial: Trial | None = None


class Proposer(ABC):
    """Turns a rewrite proposal into source."""

    @abstractmethod
    def propose(self, request: Request, rng: random.Random) -> Rewrite | None:
        """A rewrite, or None when no edit of the parent gives anything new."""

    def tell(self, trial: Trial, kernel: Kernel, parent: str | None) -> None:
        """One finished trial, in ask order, with its kernel and its parent's digest (None for the seed)."""

    def spending(self) -> str:
        """The cost of its models so far, in a few words for the progress line; empty without models."""
        return ""
