"""The options of `optimize`: as they are given, as a run that goes on brings them, and as they are typed to go on."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from kernelsearch.cluster.machines import MachineOptions
from kernelsearch.core.arguments import settle_options
from kernelsearch.core.errors import StoreError
from kernelsearch.core.formats import format_count
from kernelsearch.core.types import TaskFacts
from kernelsearch.propose import proposers
from kernelsearch.record import DEFAULT_DB, queries
from kernelsearch.record.rows import KERNELS, Run
from kernelsearch.record.store import Store
from kernelsearch.search import strategies
from kernelsearch.search.population import SETTING, TRY
from kernelsearch.tasks.module import read_text
from kernelsearch.trial.bench import versions

_FLAGS = {"models": "--model", "shapes": "--shape", "starts": "--start", "params": "--param", "edits": "--edit"}
PARAMS = "params"
"""In a run's settings: the parameters of its strategy that were given."""
_NOT_REPEATED = {"resume", "quiet", "budget_seconds", "confirm_seconds", "given", "ending"}
"""Options of one command, not of the run: how it talks, and how long it may take."""


@dataclass(frozen=True)
class OptimizeOptions:
    """The options of a search, as the command line names them: `kernelsearch help optimize` explains those of models.

    params are the strategy's; edits are files with typed edits of one's own; starts are kernel files to begin with;
    shapes narrow the timed shapes; kernels is how many a table of several shapes may have; out is a file for the best
    kernel; ending says that nothing follows in this process, so that further interrupts are ignored; given are the
    names of those that the user gave, which decide on resuming.
    """

    trials: int = 200
    strategy: str = strategies.DEFAULT
    params: Mapping[str, Any] = field(default_factory=dict)
    edits: tuple[str, ...] = ()
    proposer: str = ""
    models: tuple[str, ...] = ()
    max_tokens: int | None = None
    max_usd: float | None = None
    price: tuple[float, float] | None = None
    record: str | None = None
    target: str = "auto"
    db: str = DEFAULT_DB
    seed: int = 0
    shapes: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    window: int | None = None
    budget_seconds: float | None = None
    resume: bool = False
    out: str | None = None
    quiet: bool = False
    confirm: bool = True
    confirm_seconds: float | None = None
    kernels: int = KERNELS
    fresh: bool = False
    require_isolation: bool = False
    gpus: str = ""
    ray: str = ""
    device: str = ""
    ending: bool = False
    given: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        settle_options(self, "trials max_tokens window kernels")

    def model(self) -> proposers.ModelOptions:
        """Who proposes. Raises ModelError for a proposer that is unknown or not installed."""
        return proposers.ModelOptions(
            self.proposer, self.models, self.max_tokens, self.max_usd, self.price, self.record
        )

    def machines(self) -> MachineOptions:
        """Where candidates are evaluated."""
        return MachineOptions(self.gpus, self.ray, self.device)


def find_unfinished(store: Store, facts: TaskFacts, options: OptimizeOptions) -> Run:
    """The task's last unfinished run, of the strategy and the seed if these were given. Raises StoreError.

    With a larger budget a finished run is unfinished again. Runs of a study and of `try` are not meant, nor is one that
    another process writes; where there is no other, RunBusy says so.
    """
    written, busy = store.find_written_runs(), 0
    given = {name: getattr(options, name) for name in ("strategy", "seed") if name in options.given}
    for run in store.load_runs(facts.digest):
        meant = (
            "study" not in run.facts.settings and run.facts.strategy != TRY and given.items() <= vars(run.facts).items()
        )
        longer = "trials" in options.given and store.count_trials(run.id) < options.trials
        if meant and run.id in written:
            busy = busy or run.id
        elif meant and (run.finished is None or longer):
            return run
    if busy:
        store.claim_run(busy)
    which = "".join(f" {word} {name} {value}" for word, (name, value) in zip(("with", "and"), given.items()))
    files, changed = queries.task_files(store), ""
    others = (run for run in store.load_runs() if files[run.task][0] == facts.name and run.task != facts.digest)
    if earlier := next((run for run in others if run.finished is None), None):
        file = os.path.basename(facts.path)
        changed = f": {file} has changed since run {earlier.id} began; bring its text back, or leave out --resume"
    raise StoreError(f"{options.db} has no unfinished run of {facts.name}{which} to resume{changed}")


def take_over(run: Run, facts: TaskFacts, options: OptimizeOptions) -> OptimizeOptions:
    """The options with those of the run where none were given. Who proposes must be named again: it may cost money."""
    own, shapes = run.facts, tuple(run.facts.settings.get("shapes", ()))
    stored = {name: getattr(own, name) for name in ("strategy", "seed", "trials", "window", "kernels")}
    stored[PARAMS] = own.settings.get(PARAMS, {})
    stored["shapes"] = () if len(shapes) == len(facts.shapes) else shapes
    return replace(options, **{name: value for name, value in stored.items() if name not in options.given})


def read_starts(options: OptimizeOptions, resumed: Run | None = None) -> list[list[str]]:
    """The files of the population, each as its name and its text; those of a run that goes on come from its record."""
    if resumed is None:
        return [[name, read_text(name)] for name in options.starts]
    stored = resumed.facts.settings.get(SETTING, [])
    if options.starts and list(options.starts) != [name for name, _ in stored]:
        own = ", ".join(name for name, _ in stored) or "none"
        raise StoreError(f"run {resumed.id} began with --start {own}: give that, or start a new run")
    return stored


def describe(store: Store, run: Run) -> str:
    """A sentence on the run that goes on; with the packages that have changed since it began."""
    now = versions()
    changed = [
        f"{name} {was} (now {now[name]})" for name, was in run.facts.versions.items() if now.get(name, was) != was
    ]
    note = f"; note: it began with {', '.join(changed)}" if changed else ""
    return f"going on with run {run.id}, {run.name}, after {format_count(store.count_trials(run.id), 'trial')}{note}"


def format_options(options: OptimizeOptions) -> str:
    """The options that a resumed run must repeat, as they would be typed, each with a space behind it."""
    parts: list[str] = []
    for name, default in ((f.name, f.default) for f in fields(options) if f.name not in _NOT_REPEATED):
        value, flag = getattr(options, name), _FLAGS.get(name, f"--{name.replace('_', '-')}")
        if value == default or (not value and name in _FLAGS):
            continue
        if name == PARAMS:
            value = [f"{key}={one!r}" for key, one in value.items()]
        if isinstance(value, bool):
            parts.append(flag if value else flag.replace("--", "--no-", 1))
        elif name in _FLAGS:
            parts += [f"{flag} {shlex.quote(one)}" for one in value]
        else:
            values = value if isinstance(value, tuple) else (value,)
            parts.append(" ".join([flag, *(shlex.quote(str(v)) for v in values)]))
    return "".join(f"{part} " for part in parts)
