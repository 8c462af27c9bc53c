"""Trials as rows and rows as trials: what goes in comes out equal, so that a run can be told its own past."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

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
from kernelsearch.kernel.source import Kernel, flat_config, flat_space

Row = dict[str, Any]


@dataclass(frozen=True)
class RunFacts:
    """What a run is repeated from: all of it must be equal on resume, but for trials (the budget) and versions."""

    strategy: str
    proposer: str = ""
    seed: int = 0
    window: int = 1
    trials: int = 200
    target: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", json.loads(dumps(dict(self.settings))))  # as they will be read back


@dataclass(frozen=True)
class Run:
    """One stored run."""

    id: int
    name: str
    task: str
    facts: RunFacts
    started: str
    finished: str | None
    extended: int = 0
    """How many trials it had when its budget was last changed."""


@dataclass(frozen=True)
class Structure:
    """A kernel as it came into a run: at which trial, from which parent, by which edit and why."""

    kernel: Kernel
    number: int
    parent: str | None = None
    edit: str | None = None
    rationale: str = ""


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)


def candidate_digest(task: str, kernel: str, config: Mapping[str, Any]) -> str:
    return content_digest(task, kernel, config_key(config))


def task_row(task: TaskFacts) -> Row:
    shapes = [
        {"key": s.key, "label": s.label, "bytes_moved": s.bytes_moved, "flops": s.flops}
        for s in (*task.shapes, *task.test_shapes)
    ]
    return dict(
        digest=task.digest,
        name=task.name,
        path=task.path,
        form=task.form,
        precision=task.precision,
        shapes=dumps(shapes),
        space=dumps({k: list(v) for k, v in task.space.items()}),
    )


def run_row(task: TaskFacts, facts: RunFacts, started: str) -> Row:
    name = f"{task.name} {facts.strategy} seed {facts.seed} {started[:16]}"
    return dict(
        name=name,
        task=task.digest,
        strategy=facts.strategy,
        proposer=facts.proposer,
        seed=facts.seed,
        window=facts.window,
        trials=facts.trials,
        target=facts.target,
        versions=config_key(facts.versions),
        settings=dumps(dict(facts.settings)),
        started=started,
        finished=None,
    )


def run_of(row: Row) -> Run:
    facts = RunFacts(
        row["strategy"],
        row["proposer"],
        row["seed"],
        row["window"],
        row["trials"],
        row["target"],
        json.loads(row["versions"]),
        json.loads(row["settings"]),
    )
    return Run(row["id"], row["name"], row["task"], facts, row["started"], row["finished"], row.get("extended", 0))


def kernel_row(structure: Structure) -> Row:
    kernel = structure.kernel
    return dict(
        digest=kernel.digest,
        name=f"{kernel.entries[-1] if kernel.entries else kernel.names[-1]} {kernel.digest[:6]}",
        source=kernel.render(),
        parent=structure.parent,
        edit=structure.edit,
        rationale=structure.rationale,
        created=now(),
    )


def structure_row(run: int, structure: Structure) -> Row:
    kernel = structure.kernel
    return dict(
        run=run,
        kernel=kernel.digest,
        number=structure.number,
        parent=structure.parent,
        edit=structure.edit,
        rationale=structure.rationale,
        space=dumps({k: list(v) for k, v in kernel.space.items()}),
        config=dumps(dict(kernel.config)),
    )


def structure_of(row: Row) -> Structure:
    """row: a structure joined with its kernel's source."""
    kernel = Kernel.parse(row["source"]).changed(
        space=flat_space(json.loads(row["space"])), config=flat_config(json.loads(row["config"]))
    )
    return Structure(kernel, row["number"], row["parent"], row["edit"], row["rationale"])


def candidate_row(task: str, kernel: str, config: Mapping[str, Any]) -> Row:
    named = ", ".join(f"{k}={v}" for k, v in config.items())
    return dict(
        digest=candidate_digest(task, kernel, config),
        name=f"{kernel[:6]} {named}",
        task=task,
        kernel=kernel,
        config=config_key(config),
    )


def trial_row(run: int, task: str, trial: Trial) -> Row:
    verdict, measurement, proposal = trial.outcome.verdict, trial.outcome.measurement, trial.proposal
    asked = dict(
        parents=list(proposal.parents),
        edit=proposal.edit,
        sampler=proposal.sampler,
        config=None if proposal.config is None else dict(proposal.config),
    )
    row = dict(
        run=run,
        number=trial.number,
        candidate=candidate_digest(task, trial.kernel, trial.config),
        kernel=trial.kernel,
        kind=proposal.kind.value,
        proposal=dumps(asked),
        edit=trial.edit,
        rationale=trial.rationale,
        verdict=verdict.word.value,
        stage=verdict.stage,
        reason=verdict.reason,
        depth=verdict.depth,
        error_ratio=_finite(verdict.error_ratio),
        referee=verdict.referee.mode,
        layers=dumps(list(verdict.referee.layers)),
        detail=dumps(dict(verdict.detail)),
        score=trial.score,
        seconds=trial.outcome.seconds,
        work=trial.outcome.work,
        measured_by=trial.outcome.measured_by,
        finished=now(),
    )
    if measurement:
        row |= dict(
            evidence=measurement.evidence.value,
            device=measurement.device,
            protocol=measurement.protocol,
            abandoned=int(measurement.abandoned),
            times=dumps([_time_row(t) for t in measurement.times]),
            time_us=geometric_mean([t.time_us for t in measurement.times]),
        )
    return row


def trial_of(row: Row, hints: tuple[Hint, ...]) -> Trial:
    """row: a trial joined with its candidate's config."""
    asked = json.loads(row["proposal"])
    proposal = Proposal(
        ProposalKind(row["kind"]), tuple(asked["parents"]), asked["edit"], asked["config"], asked["sampler"]
    )
    outcome = outcome_of(row, hints)
    return Trial(
        row["number"],
        proposal,
        row["kernel"],
        json.loads(row["config"]),
        outcome,
        row["score"],
        row["edit"],
        row["rationale"],
    )


def outcome_of(row: Row, hints: tuple[Hint, ...]) -> Outcome:
    """row: a trial."""
    verdict = Verdict(
        Word(row["verdict"]),
        row["stage"],
        row["reason"],
        row["depth"],
        row["error_ratio"],
        Referee(row["referee"], tuple(json.loads(row["layers"]))),
        json.loads(row["detail"]),
    )
    measurement = None
    if row["times"] is not None:
        times = tuple(ShapeTime(**t) for t in json.loads(row["times"]))
        measurement = Measurement(
            Evidence(row["evidence"]), row["device"], row["protocol"], times, bool(row["abandoned"])
        )
    return Outcome(verdict, measurement, hints, row["seconds"], row["work"], row["measured_by"])


def measurement_rows(candidate: str, measurement: Measurement, versions: Mapping[str, str]) -> list[Row]:
    return [
        dict(
            candidate=candidate,
            shape=t.shape,
            specialisation=t.specialisation,
            device=measurement.device,
            protocol=measurement.protocol,
            versions=config_key(versions),
            evidence=measurement.evidence.value,
            time_us=t.time_us,
            spread_us=t.spread_us,
            samples=t.samples,
            detail=dumps(dict(t.detail)),
            measured=now(),
        )
        for t in measurement.times
    ]


def hint_rows(run: int, trial: Trial) -> list[Row]:
    return [
        dict(
            run=run,
            number=trial.number,
            position=i,
            bottleneck=hint.bottleneck,
            evidence=dumps(dict(hint.evidence)),
            suggestion=hint.suggestion,
        )
        for i, hint in enumerate(trial.outcome.hints)
    ]


def hint_of(row: Row) -> Hint:
    return Hint(row["bottleneck"], json.loads(row["evidence"]), row["suggestion"])


def geometric_mean(values: list[float]) -> float | None:
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None


def _time_row(time: ShapeTime) -> Row:
    return {**asdict(time), "detail": dict(time.detail)}


def _finite(value: float | None) -> float | None:
    """SQLite has no NaN and turns it into NULL; infinity it keeps."""
    return None if value is None or math.isnan(value) else value
