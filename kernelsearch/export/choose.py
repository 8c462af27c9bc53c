"""Chooses from the record what to export: for each device and shape of a task the best kernel and config.

Several databases are read as one. On each device only the strongest evidence counts; what is weaker than the user
allows is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from kernelsearch.core.errors import TaskError
from kernelsearch.core.formats import CLAIMS, FAILED
from kernelsearch.core.parsing import suggest_names
from kernelsearch.core.types import Config, Evidence, config_key
from kernelsearch.export import ExportError
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.timing.by_shape import choose_table, infer_seed_finding, ratios_of
from kernelsearch.record import export_queries as queries
from kernelsearch.record import family_tree
from kernelsearch.record.family_tree import LineageStep
from kernelsearch.record.queries import seed_tunings
from kernelsearch.record.rows import times_of
from kernelsearch.record.steps import load_step_gains
from kernelsearch.record.store import Store
from kernelsearch.tasks.module import compute_digest

LEVELS = tuple(Evidence)
"""Evidence, weakest first."""


@dataclass(frozen=True)
class ExportCandidate:
    """A candidate on one device: its times by shape in microseconds, its row in the record, and its evidence.

    ratios are times over the seed's, by shape (below 1 is faster), where the seed was timed; finding is the result of
    the confirmed protocol; gains are what its ancestors gain with its config (`record/steps.py`). is_seed: the task's
    own kernel with its own config, which runs where nothing else is faster.
    """

    kernel: Kernel
    config: Config
    device: str
    evidence: Evidence
    times: Mapping[str, float]
    ratios: Mapping[str, float]
    database: str
    run: int | None = None
    trial: int | None = None
    verdict: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    finding: Mapping[str, Any] | None = None
    ancestors: Sequence[LineageStep] = ()
    gains: Mapping[str, float | None] = field(default_factory=dict)
    run_name: str = ""
    measured: str = ""
    is_seed: bool = False

    @property
    def digest(self) -> str:
        return self.kernel.digest

    @property
    def key(self) -> tuple[str, str]:
        return self.kernel.digest, config_key(self.config)

    def entry_at(self, shape: str) -> Mapping[str, Any] | None:
        """The finding's entry for a shape, None without one."""
        return next((s for s in (self.finding or {}).get("shapes", ()) if s["shape"] == shape), None)


@dataclass(frozen=True)
class TaskChoice:
    """A task and what to export for it: by device, then by shape key, the candidate that is best there.

    seed is, by device, the result of tuning its own kernel over its own list (`configs`: how many, `config`: the best);
    drawn are, by device, times at shapes between the task's own (`drawn_times`).
    """

    name: str
    digest: str
    path: Path
    devices: Mapping[str, Mapping[str, ExportCandidate]]
    seeds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    drawn: Mapping[str, Mapping[str, Mapping[tuple[str, str], float]]] = field(default_factory=dict)

    @property
    def found(self) -> tuple[ExportCandidate, ...]:
        """All candidates, each once, in a fixed order."""
        unique = {(d, *f.key): f for d, by_shape in self.devices.items() for f in by_shape.values()}
        return tuple(unique[key] for key in sorted(unique))

    @property
    def claims(self) -> dict[str, list[Any]]:
        """What the verdicts on all of them cover beyond the task's own shapes."""
        first, *others = [f.verdict.get(CLAIMS, {}) for f in self.found]
        return {name: values for name, values in first.items() if all(c.get(name) == values for c in others)}

    @property
    def failed(self) -> list[Mapping[str, str]]:
        """How the task's own kernel fails at made sizes, as the verdicts have it: each of them once."""
        return list({f["sizes"]: f for found in self.found for f in found.verdict.get(FAILED, ())}.values())

    @property
    def weakest(self) -> Evidence:
        return min((f.evidence for f in self.found), key=LEVELS.index)


@dataclass(frozen=True)
class _Timed:
    """A candidate of the record before its kernel is read: what `choose_table` needs; read gives the whole of it."""

    device: str
    evidence: Evidence
    ratios: Mapping[str, float]
    order: tuple[Any, ...]
    is_seed: bool
    read: Callable[[], ExportCandidate]


def choose(
    databases: Sequence[str | Path], task: str, least: Evidence = Evidence.CONFIRMED, device: str | None = None
) -> TaskChoice:
    """The kernels to export for a task, which is given by name, digest or file. Raises KernelsearchError."""
    candidates: list[_Timed] = []
    seeds: dict[str, Mapping[str, Any]] = {}
    rows: dict[str, dict[str, Any]] = {}
    drawn: dict[str, dict[str, Any]] = {}
    names: list[str] = []
    most = 0
    with ExitStack() as stack:
        for database in databases:
            store = stack.enter_context(Store.open(database, write=False))
            row = _task_row(store, task)
            names += queries.task_names(store)
            if row is not None:
                rows.setdefault(row["digest"], row)
                tunings = seed_tunings(store)
                seeds |= {
                    where: tuning for (task_digest, where), tuning in tunings.items() if task_digest == row["digest"]
                }
                here = list(_Reader(store, row["digest"], Path(database).name, device).candidates())
                for where in {c.device for c in here}:
                    drawn.setdefault(where, {}).update(queries.drawn_times(store, row["digest"], where))
                candidates += here
                most = max(most, store.find_most_kernels(row["digest"]))
        if len(rows) > 1:
            raise ExportError(
                f"the databases hold {len(rows)} different versions of {task} ({', '.join(sorted(rows))}): "
                "name the digest of one with --task"
            )
        if not rows:
            raise ExportError(f"no database has a task {task!r}: {suggest_names(Path(task).stem, names)}")
        digest, row = next(iter(rows.items()))
        strong = [c for c in candidates if LEVELS.index(c.evidence) >= LEVELS.index(least)]
        if not strong:
            raise ExportError(_explain_nothing(row["name"], least, {c.evidence for c in candidates}, device))
        return TaskChoice(row["name"], digest, _find_file(task, row), _choose_by_device(strong, most), seeds, drawn)


def _explain_nothing(name: str, least: Evidence, weaker: set[Evidence], device: str | None) -> str:
    on = f" on {device}" if device else ""
    if not weaker:
        return f"{name} has no accepted kernel{on} yet: nothing to export"
    best = max(weaker, key=LEVELS.index).value
    return (
        f"{name} has no {least.value} kernel{on}, only {best} ones: `kernelsearch measure` confirms on a GPU, "
        f"or say --evidence {best} and the package will say so too"
    )


# ---------------------------------------------------------------- the task


def _task_row(store: Store, task: str) -> dict[str, Any] | None:
    """The row of a task by name, digest or file; of several the one with an unchanged file, else the newest."""
    path = Path(task)
    if path.suffix == ".py":
        digests = dict.fromkeys(compute_digest(path, form) for form in ("native", "bare"))
        rows = [row for d in digests for row in queries.task_rows(store, d) if _is_unchanged(path, row)]
        if not rows and queries.task_rows(store, path.stem):
            raise ExportError(
                f"{task} is not the file that was searched (it was changed since): search it again, "
                "or bring the old one back"
            )
    else:
        rows = queries.task_rows(store, task)
    return next((row for row in rows if _is_unchanged(Path(row["path"]), row)), rows[0] if rows else None)


def _is_unchanged(path: Path, row: Mapping[str, Any]) -> bool:
    """Whether a file is there and still the task of this row."""
    try:
        return compute_digest(path, row["form"]) == row["digest"]
    except TaskError:
        return False


def _find_file(task: str, row: Mapping[str, Any]) -> Path:
    path = Path(task) if Path(task).suffix == ".py" else Path(row["path"])
    if not path.is_file():
        raise ExportError(f"the task's file {path} is not there any more: name it with --task FILE.py")
    if not _is_unchanged(path, row):
        raise ExportError(
            f"{path} was changed since {row['name']} was searched: its kernels were judged against another "
            "reference; search it again, or name the old file with --task FILE.py"
        )
    return path


# ---------------------------------------------------------------- candidates


class _Reader:
    """Reads the candidates that one database has for one task; device narrows them."""

    def __init__(self, store: Store, task: str, database: str, device: str | None) -> None:
        self.store, self.task, self.database, self.device = store, task, database, device
        self.seed_times = cache(partial(queries.seed_times, store))
        self.lineage_tree = cache(partial(family_tree.load_tree, store))

    def candidates(self) -> Iterator[_Timed]:
        yield from self._list_confirmed()
        yield from self._list_tried()

    def _list_confirmed(self) -> Iterator[_Timed]:
        """Every confirmed candidate, and on each device the seed with the times that these findings give it."""
        by_device: dict[str, list[dict[str, Any]]] = {}
        for finding in self.store.load_confirmations(self.task, self.device):
            if finding["status"] == "confirmed" and finding["shapes"]:
                by_device.setdefault(finding["device"], []).append(finding)
        for device, findings in by_device.items():
            seed = queries.seed_candidate(self.store, self.task, device)
            others = [f for f in findings if f["candidate"] != seed]
            yield from (self._from_finding(f["candidate"], f) for f in others)
            own = infer_seed_finding(others) or next((f for f in findings if f["candidate"] == seed), None)
            if seed is not None and own is not None:
                row = queries.candidate_row(self.store, seed)
                newest = max(findings, key=lambda f: f["measured"])
                facts = {"kernel": row["kernel"], "config": json.loads(row["config"])}
                yield self._from_finding(
                    seed, {**own, **{k: newest[k] for k in ("measured", "versions")}, **facts}, is_seed=True
                )

    def _from_finding(self, candidate: str, finding: Mapping[str, Any], is_seed: bool = False) -> _Timed:
        trial = queries.accepted_trial(self.store, candidate) or {"run": 0, "number": 0}
        facts = {name: finding[name] for name in ("device", "versions", "measured")}
        facts |= {"evidence": Evidence.CONFIRMED, "finding": finding, "is_seed": is_seed}
        facts |= {"times": {s["shape"]: s["time_us"] for s in finding["shapes"]}, "ratios": ratios_of(finding)}
        return self._time((False, trial["run"], trial["number"], candidate), facts)

    def _list_tried(self) -> Iterator[_Timed]:
        """Every trial that was timed, and of those of the task's own kernel the newest on each device."""
        for row in queries.timed_trials(self.store, self.task, self.device):
            times, seed = times_of(row), self.seed_times(row["run"])
            ratios: dict[str, Any] = {shape: time / seed[shape] for shape, time in times.items() if shape in seed}
            ratios = ratios or dict.fromkeys(times, row["score"])
            order = row["depth"] != "full", row["run"], row["number"], row["candidate"]
            facts = {"device": row["device"], "evidence": Evidence(row["evidence"]), "is_seed": row["kind"] == "seed"}
            facts |= {"versions": json.loads(row["versions"]), "measured": row["finished"]}
            yield self._time(order, {**facts, "times": times, "ratios": ratios})

    def _time(self, order: tuple[Any, ...], facts: Mapping[str, Any]) -> _Timed:
        """A candidate, whose digest ends the order, with these fields of its `ExportCandidate`."""
        ratios, read = facts["ratios"] or facts["times"], partial(self._make_candidate, order[-1], facts)
        return _Timed(facts["device"], facts["evidence"], ratios, order, facts["is_seed"], read)

    def _make_candidate(self, candidate: str, facts: Mapping[str, Any]) -> ExportCandidate:
        more = {**facts, "database": self.database}
        with self.store.explain_contents():
            row, trial = queries.candidate_row(self.store, candidate), queries.accepted_trial(self.store, candidate)
            if trial is not None:
                detail = json.loads(trial["detail"])
                more |= {
                    "run": trial["run"],
                    "gains": load_step_gains(self.store, candidate, facts["device"]),
                    "trial": trial["number"],
                    "run_name": trial["name"],
                    "ancestors": family_tree.ancestors(self.lineage_tree(trial["run"]), row["kernel"]),
                    "verdict": {
                        **{name: trial[name] for name in ("verdict", "depth", "error_ratio")},
                        "referee": {"mode": trial["referee"], "layers": json.loads(trial["layers"])},
                        CLAIMS: detail.get(CLAIMS, {}),
                        **({FAILED: detail[FAILED]} if FAILED in detail else {}),
                    },
                }
            if (kernel := Kernel.parse(row["source"])).digest != row["kernel"]:
                changed = f"kernel {row['kernel'][:8]} was changed: its source has another digest"
                raise ExportError(f"{self.database}: {changed}")
            return ExportCandidate(kernel, json.loads(row["config"]), **more)


# ---------------------------------------------------------------- the best, by device and shape


def _choose_by_device(candidates: Sequence[_Timed], most: int) -> dict[str, dict[str, ExportCandidate]]:
    """The table of each device by its strongest evidence, of at most so many candidates beside the seed."""
    devices: dict[str, dict[str, ExportCandidate]] = {}
    for device in sorted({f.device for f in candidates}):
        here = [f for f in candidates if f.device == device]
        strongest = max((f.evidence for f in here), key=LEVELS.index)
        here = [f for f in here if f.evidence is strongest]
        seed = next((f for f in here if f.is_seed), None)
        here = [f for f in here if not f.is_seed or f is seed]
        by_shape = choose_table(here, lambda f: f.ratios, lambda f: f.order, seed, most)
        found = {id(f): f.read() for f in by_shape.values()}
        devices[device] = {shape: found[id(by_shape[shape])] for shape in sorted(by_shape, key=_shape_order)}
    return devices


def _shape_order(key: str) -> tuple[str, int]:
    kind, _, number = key.partition(":")
    return kind, int(number) if number.isdigit() else 0
