"""Runs as Optuna studies, in any Optuna storage; SQLite's may be the database's own file.

A study has its run's name and its trials in order: configs are the parameters, time over the seed's is the value,
everything else a user attribute. A rejected candidate is a FAILed trial, an abandoned one is PRUNED. Writing again adds
only what is missing. Numbers are integer or float parameters, whose ranges may grow during a run; texts and flags are
attributes, because the choices of a categorical parameter may not grow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from kernelsearch.core.errors import StoreError
from kernelsearch.core.types import Trial
from kernelsearch.record.rows import Run, columns
from kernelsearch.record.store import Store

if TYPE_CHECKING:
    import optuna


def write(store: Store, url: str, runs: int | None = None) -> Iterator[tuple[Run, optuna.Study, int]]:
    """Brings a storage up to date with the newest runs (all by default), newest first.

    Yields (run, its study, number of trials added). url is an Optuna storage URL such as `sqlite:///studies.db`.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = _open_storage(url)
    for run in store.load_runs()[:runs]:
        study = optuna.create_study(storage=storage, study_name=run.name, direction="minimize", load_if_exists=True)
        if not study.user_attrs:
            plain = columns(run.facts, "strategy proposer seed target") | {"versions": dict(run.facts.versions)}
            about = {"run": run.id, "task": run.task, **plain, "value": "time over the seed's time"}
            for name, value in about.items():
                study.set_user_attr(name, value)
        known = len(study.get_trials(deepcopy=False))
        structures = {digest: number for number, digest in enumerate(store.load_structures(run.id))}
        ends = store.query("SELECT number, finished FROM trial WHERE run = ?", [run.id])
        finished = {row["number"]: row["finished"] for row in ends}
        missing = [t for t in store.load_trials(run.id) if t.number >= known]
        for trial in missing:
            study.add_trial(_freeze_trial(trial, structures, finished[trial.number]))
        yield run, study, len(missing)


def _open_storage(url: str) -> optuna.storages.RDBStorage:
    """The storage at a URL. Raises StoreError if the driver or the server is missing, or the URL is not a storage's."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    options = {"connect_args": {"timeout": 30}} if url.startswith("sqlite") else None
    try:
        return optuna.storages.RDBStorage(url, engine_kwargs=options)
    except (ImportError, ValueError, SQLAlchemyError) as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        scheme = url.partition("://")[0]
        raise StoreError(f"the {scheme} storage cannot be opened: {why}") from None


def _freeze_trial(trial: Trial, structures: Mapping[str, int], finished: str) -> optuna.trial.FrozenTrial:
    import optuna

    outcome = trial.outcome
    measurement = outcome.measurement
    state = optuna.trial.TrialState.COMPLETE
    if measurement is None or trial.score is None:
        state = optuna.trial.TrialState.FAIL
    elif measurement.abandoned:
        state = optuna.trial.TrialState.PRUNED
    params, distributions, attributes = _split_config(trial, structures)
    more = {
        **columns(trial, "kernel edit rationale"),
        "verdict": outcome.verdict.word.value,
        "reason": outcome.verdict.reason,
        "kind": trial.proposal.kind.value,
        "hints": [hint.suggestion for hint in outcome.hints],
    }
    if measurement is not None:
        more |= {"evidence": measurement.evidence.value, "device": measurement.device, "time_us": measurement.by_shape}
    end = datetime.fromisoformat(finished).astimezone().replace(tzinfo=None)
    frozen = optuna.trial.create_trial(
        state=state,
        value=None if state == optuna.trial.TrialState.FAIL else trial.score,
        params=params,
        distributions=distributions,
        user_attrs=attributes | {name: value for name, value in more.items() if value},
    )
    frozen.datetime_start = end - timedelta(seconds=outcome.seconds)
    frozen.datetime_complete = end
    return frozen


def _split_config(trial: Trial, structures: Mapping[str, int]) -> tuple[dict[str, Any], ...]:
    """(Numbers as parameters, their distributions, the rest as attributes); `structure` counts the run's kernels."""
    import optuna

    config = {"structure": structures.get(trial.kernel, 0), **trial.config}
    params: dict[str, Any] = {
        n: v for n, v in config.items() if isinstance(v, (int, float)) and not isinstance(v, bool)
    }
    ints, floats = optuna.distributions.IntDistribution, optuna.distributions.FloatDistribution
    ranges = {n: (ints if isinstance(v, int) else floats)(min(v, 0), max(v, 1)) for n, v in params.items()}
    attributes = {f"config.{name}": value for name, value in config.items() if name not in params}
    return params, ranges, attributes
