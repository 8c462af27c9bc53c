"""Trials, runs and model calls as rows of the database, and back: what is written comes back equal."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from kernelsearch.core.model_calls import AnswerRecord, ModelCall
from kernelsearch.core.types import (
    Evidence,
    Hint,
    Measurement,
    Outcome,
    Proposal,
    ProposalKind,
    Referee,
    ShapeTime,
    TaskFacts,
    Trial,
    Verdict,
    Word,
    config_key,
    content_digest,
)
from kernelsearch.kernel.literals import flatten_config, flatten_space
from kernelsearch.kernel.source import Kernel

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Row = dict[str, Any]
T = TypeVar("T", bound="DataclassInstance")
SEED_SETTING = "seed"
"""In a run's settings: how many configs the seed's own list has (`configs`), and the best of them (`config`)."""
KERNELS, KERNELS_SETTING = 4, "kernels"
"""Candidates of a table, if nothing else is said; the name of another number in a run's settings."""


@dataclass(frozen=True)
class RunFacts:
    """Settings of a run. All of them must be equal on resume, except trials (the budget) and versions."""

    strategy: str
    proposer: str = ""
    seed: int = 0
    window: int = 1
    trials: int = 200
    target: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", json.loads(dump_json(dict(self.settings))))  # as they will be read back

    @property
    def kernels(self) -> int:
        """How many candidates its table may have beside the seed."""
        return self.settings.get(KERNELS_SETTING, KERNELS)


@dataclass(frozen=True)
class Run:
    """One stored run. extended is the number of trials that it had when its budget was last changed."""

    id: int
    name: str
    task: str
    facts: RunFacts
    started: str
    finished: str | None
    extended: int = 0

    @property
    def seed_configs(self) -> int:
        """How many configs of its own list the seed was tuned over; 0 for one without a list."""
        return (self.facts.settings.get(SEED_SETTING) or {}).get("configs", 0)


@dataclass(frozen=True)
class Structure:
    """A kernel as it came into a run: at which trial, from which parent, by which edit and why."""

    kernel: Kernel
    number: int
    parent: str | None = None
    edit: str | None = None
    rationale: str = ""


# ---------------------------------------------------------------- fields and columns


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def dump_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


def columns(source: object, names: str) -> Row:
    """The attributes of these names (separated by spaces) as columns."""
    return {name: getattr(source, name) for name in names.split()}


def from_row(cls: type[T], row: Row, **values: Any) -> T:
    """An instance of a dataclass from the columns that bear its fields' names; `values` replace or add some."""
    names = _names_of(cls)
    return cls(**{name: value for name, value in row.items() if name in names} | values)


@cache
def _names_of(cls: type) -> frozenset[str]:
    return frozenset(f.name for f in fields(cls))


def geometric_mean(values: list[float]) -> float | None:
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None


def score_times(times: Mapping[str, float], seed: Mapping[str, float]) -> float | None:
    """A score: the mean of time / the seed's over the shapes; of several, a slower or missing one counts as 1."""
    ratios = [times.get(shape, us) / us for shape, us in seed.items()]
    mean = geometric_mean(ratios if len(ratios) == 1 else [min(1.0, ratio) for ratio in ratios])
    return mean and float(f"{mean:.9g}")  # what is equally fast is equal


def _without_nan(value: float | None) -> float | None:
    """SQLite has no NaN and turns it into NULL; it keeps infinity."""
    return None if value is None or math.isnan(value) else value


def _dump_space(space: Mapping[str, Iterable[Any]]) -> str:
    return dump_json({name: list(values) for name, values in space.items()})


# ---------------------------------------------------------------- tasks, runs, kernels


def candidate_digest(task: str, kernel: str, config: Mapping[str, Any]) -> str:
    return content_digest(task, kernel, config_key(config))


def task_row(task: TaskFacts) -> Row:
    names = "key label bytes_moved flops"
    shapes = [columns(shape, names) for shape in (*task.shapes, *task.test_shapes)]
    plain = columns(task, "digest name path form precision")
    return {**plain, "shapes": dump_json(shapes), "space": _dump_space(task.space)}


def run_row(task: TaskFacts, facts: RunFacts, started: str) -> Row:
    return dict(
        vars(facts),
        name=f"{task.name} {facts.strategy} seed {facts.seed} {started[:16]}",
        task=task.digest,
        versions=config_key(facts.versions),
        settings=dump_json(dict(facts.settings)),
        started=started,
        finished=None,
    )


def run_of(row: Row) -> Run:
    facts = from_row(RunFacts, row, versions=json.loads(row["versions"]), settings=json.loads(row["settings"]))
    return from_row(Run, row, facts=facts)


def kernel_row(structure: Structure) -> Row:
    kernel = structure.kernel
    return dict(
        columns(structure, "parent edit rationale"),
        digest=kernel.digest,
        name=f"{kernel.entries[-1] if kernel.entries else kernel.names[-1]} {kernel.digest[:6]}",
        source=kernel.render(),
        created=now(),
    )


def structure_row(run: int, structure: Structure) -> Row:
    kernel = structure.kernel
    return dict(
        columns(structure, "number parent edit rationale"),
        run=run,
        kernel=kernel.digest,
        space=_dump_space(kernel.space),
        config=dump_json(dict(kernel.config)),
    )


def structure_of(row: Row) -> Structure:
    """row: a structure joined with its kernel's source."""
    space, config = flatten_space(json.loads(row["space"])), flatten_config(json.loads(row["config"]))
    return from_row(Structure, row, kernel=Kernel.parse(row["source"]).with_changes(space=space, config=config))


def candidate_row(task: str, kernel: str, config: Mapping[str, Any]) -> Row:
    named = ", ".join(f"{k}={v}" for k, v in config.items())
    return dict(
        digest=candidate_digest(task, kernel, config),
        name=f"{kernel[:6]} {named}",
        task=task,
        kernel=kernel,
        config=config_key(config),
    )


# ---------------------------------------------------------------- trials


def trial_row(run: int, task: str, trial: Trial) -> Row:
    outcome, proposal = trial.outcome, trial.proposal
    verdict, measurement = outcome.verdict, outcome.measurement
    config = None if proposal.config is None else dict(proposal.config)
    row = dict(
        **columns(trial, "number kernel edit rationale score"),
        **columns(verdict, "stage reason depth"),
        **columns(outcome, "seconds work measured_by"),
        run=run,
        candidate=candidate_digest(task, trial.kernel, trial.config),
        kind=proposal.kind.value,
        proposal=dump_json({**columns(proposal, "parents edit sampler drained"), "config": config}),
        verdict=verdict.word.value,
        error_ratio=_without_nan(verdict.error_ratio),
        referee=verdict.referee.mode,
        layers=dump_json(verdict.referee.layers),
        detail=dump_json(dict(verdict.detail)),
        finished=now(),
    )
    if measurement:
        row |= dict(
            columns(measurement, "device protocol"),
            evidence=measurement.evidence.value,
            abandoned=int(measurement.abandoned),
            times=dump_json([{**vars(t), "detail": dict(t.detail)} for t in measurement.times]),
            time_us=geometric_mean([t.time_us for t in measurement.times]),
        )
    return row


def times_of(row: Row) -> dict[str, float]:
    """A trial's times in microseconds, by shape; empty if it was rejected."""
    return {time["shape"]: time["time_us"] for time in json.loads(row["times"] or "[]")}


def trial_of(row: Row, hints: tuple[Hint, ...]) -> Trial:
    """row: a trial joined with its candidate's config."""
    stored = json.loads(row["proposal"])
    proposal = from_row(Proposal, stored, kind=ProposalKind(row["kind"]), parents=tuple(stored["parents"]))
    return from_row(Trial, row, proposal=proposal, config=json.loads(row["config"]), outcome=outcome_of(row, hints))


def outcome_of(row: Row, hints: tuple[Hint, ...]) -> Outcome:
    """row: a trial."""
    referee = Referee(row["referee"], tuple(json.loads(row["layers"])))
    verdict = from_row(Verdict, row, word=Word(row["verdict"]), referee=referee, detail=json.loads(row["detail"]))
    measurement = None
    if row["times"] is not None:
        times = tuple(ShapeTime(**t) for t in json.loads(row["times"]))
        evidence = Evidence(row["evidence"])
        measurement = from_row(Measurement, row, evidence=evidence, times=times, abandoned=bool(row["abandoned"]))
    return from_row(Outcome, row, verdict=verdict, measurement=measurement, hints=hints)


def measurement_rows(candidate: str, measurement: Measurement, versions: Mapping[str, str]) -> list[Row]:
    return [
        dict(
            **columns(t, "shape specialisation time_us spread_us samples"),
            **columns(measurement, "device protocol"),
            candidate=candidate,
            versions=config_key(versions),
            evidence=measurement.evidence.value,
            detail=dump_json(dict(t.detail)),
            measured=now(),
        )
        for t in measurement.times
    ]


def hint_rows(run: int, trial: Trial) -> list[Row]:
    return [
        {**vars(hint), "run": run, "number": trial.number, "position": i, "evidence": dump_json(dict(hint.evidence))}
        for i, hint in enumerate(trial.outcome.hints)
    ]


def hint_of(row: Row) -> Hint:
    return from_row(Hint, row, evidence=json.loads(row["evidence"]))


# ---------------------------------------------------------------- calls of models


def prompt_row(call: ModelCall) -> Row:
    return dict(digest=call.prompt, name=call.action[:60], system=call.system, page=call.page, created=now())


def call_row(run: int, call: ModelCall) -> Row:
    plain = {name: value for name, value in vars(call).items() if name not in ("system", "page", "answers")}
    return dict(plain, name=f"{call.arm} ask {call.number}", run=run, prompt=call.prompt, made=now())


def answer_rows(number: int, call: ModelCall) -> list[Row]:
    return [
        {**vars(answer), "call": number, "position": i, "digest": content_digest(answer.text)}
        for i, answer in enumerate(call.answers)
    ]


def call_of(row: Row, answers: Iterable[Row]) -> ModelCall:
    """row: a call joined with its prompt."""
    return from_row(ModelCall, row, answers=tuple(from_row(AnswerRecord, answer) for answer in answers))
