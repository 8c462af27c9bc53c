"""The contract of proposers: a request for a rewrite of a kernel, and the rewrite that answers it."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from kernelsearch.core.types import Hint, TaskFacts, Trial
from kernelsearch.kernel.source import Kernel


@dataclass(frozen=True)
class Rewrite:
    """A new structure: the kernel (tuning starts at its config), the edit's name, and one sentence that says why.

    parent is the digest of the kernel it was made from, if that is not the request's parent (a repair).
    """

    kernel: Kernel
    edit: str
    rationale: str
    parent: str | None = None


@dataclass(frozen=True)
class Request:
    """A request for a rewrite of parent whose digest is not in seen.

    edit asks for one edit by name. weights are relative odds of the edits (absent: 1); hints and the run's own
    gains set them. number is the number of the ask, trial the parent's best trial so far.
    """

    parent: Kernel
    task: TaskFacts
    seen: Container[str] = ()
    edit: str | None = None
    hints: tuple[Hint, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    number: int = 0
    trial: Trial | None = None


class Proposer:
    """Turns a rewrite proposal into source."""

    def propose(self, request: Request, rng: random.Random) -> Rewrite | None:
        """A rewrite, or None when no edit of the parent gives anything new."""
        raise NotImplementedError

    def list_edits(self, kernel: Kernel, task: TaskFacts) -> tuple[str, ...]:
        """The names of the edits that make something of a kernel; () for a proposer that does not know."""
        return ()

    def list_usual_gains(self) -> Mapping[str, float]:
        """The log gains that edits, by name, had in the mean on other tasks; what is absent is not known."""
        return {}

    def tell(self, trial: Trial, kernel: Kernel, parent: str | None) -> None:
        """Receives a finished trial, its kernel, and the digest of its parent (None for the seed).

        The search calls this for every trial, in the order of the asks.
        """

    def spending(self) -> str:
        """Cost of the proposer's models so far, in a few words for the progress line; "" without models."""
        return ""

    def may_wait(self) -> bool:
        """True if an ask may wait for a model that thinks elsewhere: other runs can go on meanwhile."""
        return False

    def send_sentences_to(self, say: Callable[[str], None]) -> None:
        """Sends sentences about models and about a user's own edits to `say` from now on."""

    def list_failures(self) -> list[str]:
        """A sentence on each of the user's own edits that failed, and on each model that was never asked."""
        return []

    def end(self) -> None:
        """Ends a run after its last trial, while its record is open."""

    def close(self) -> None:
        """Closes the engines."""
