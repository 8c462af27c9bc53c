"""What the functions for Python return: plain data with types; printed or shown, it is what the command prints."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernelsearch.core.types import Config, Evidence, Verdict
from kernelsearch.report.leaderboard import LeaderboardRow as LeaderboardRow
from kernelsearch.report.leaderboard_text import as_text
from kernelsearch.trial.referee import explain


class Shown:
    """A result with its text: `print` and notebooks show that."""

    text: str

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


@dataclass(frozen=True)
class JudgedKernel(Shown, Verdict):
    """A verdict on a kernel."""

    @property
    def text(self) -> str:  # type: ignore[override]
        """What `verify --explain` prints."""
        return explain(self)


@dataclass(frozen=True)
class FoundKernel:
    """The best kernel of a search: the task's own where nothing gained over it.

    speedup is the seed's time over this kernel's, geometric mean over the timed shapes, with its evidence.
    source is a kernel file with its config in it, which `verify` and `measure` take.
    """

    digest: str
    config: Config
    speedup: float
    evidence: Evidence
    gained: bool
    source: str = field(repr=False)


@dataclass(frozen=True)
class OptimizeResult(Shown):
    """How a search ended.

    facts is what `--json` prints; confirmed findings are in its `confirmed`. best is None where no candidate was
    accepted. Of an interrupted run `again` is the command that continues it.
    """

    task: str
    db: str
    run: int
    trials: int
    seconds: float
    interrupted: bool
    best: FoundKernel | None
    again: str
    facts: Mapping[str, Any] = field(repr=False)
    text: str = field(repr=False)


@dataclass(frozen=True)
class MeasureResult(Shown):
    """What `measure` found of one kernel.

    times are microseconds by shape and name: the kernel, the seed and, with a GPU, every baseline. evidence is
    confirmed with a GPU, estimated without one, None where the kernel is wrong: then the verdict says why. facts is
    what `--json` prints. right_and_timed is false where the answer of the command is no.
    """

    verdict: Verdict
    evidence: Evidence | None
    times: Mapping[str, Mapping[str, float]]
    right_and_timed: bool
    facts: Mapping[str, Any] = field(repr=False)
    text: str = field(repr=False)


class Leaderboard(Shown, list[LeaderboardRow]):
    """The rows of a leaderboard, best first for each task, device and evidence; a slice is shown like the whole."""

    def __getitem__(self, index: Any) -> Any:
        rows = super().__getitem__(index)
        return Leaderboard(rows) if isinstance(index, slice) else rows

    @property
    def text(self) -> str:  # type: ignore[override]
        """What the command prints."""
        return as_text([vars(row) for row in self])
