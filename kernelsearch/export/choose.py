"""What the record has to export: for each task and device the kernels and configs that are best, shape by shape.

Several databases are read as one. On a device only the strongest evidence counts that is there; what is weaker than
asked for is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelsearch.core.types import Config, Evidence, config_key, content_digest
from kernelsearch.export.errors import ExportError
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.timing.by_shape import best, ratios_of, seed_finding
from kernelsearch.measure.timing.protocol import LEAST_GAIN
from kernelsearch.record import lineage
from kernelsearch.record.store import Store

LEVELS = (Evidence.ESTIMATED, Evidence.MEASURED, Evidence.CONFIRMED)
"""Evidence, weakest first."""

MARGIN = 0.02
"""By search-time numbers a second kernel is shipped for a shape only where it is this much faster there than the best
one overall; confirmed ones are told apart by the confirmed protocol's own least gain."""

LOOKED_AT = 20
"""Candidates of a device and evidence, best first, that may be best at some shape."""

TUNED = 4
"""Configs that `--configs autotune` leaves to choose from, per shape."""


@dataclass(frozen=True)
class Ancestor:
    """One step of a kernel's lineage, from the seed on: digest, the edit that made it, what it gained."""

    kernel: str
    edit: str | None
    rationale: str
    gain: float | None


@dataclass(frozen=True)
class Found:
    """A candidate on one device: its times by shape, where its row is, and what is known of it.

    ratios are times over the seed's, by shape (below 1 is faster), where those are known; finding is what the
    confirmed protocol found; others are further configs by shape, best first. is_seed: the task's own kernel with its
    own config, which runs where nothing else is faster.
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
    ancestors: tuple[Ancestor, ...] = ()
    run_name: str = ""
    others: Mapping[str, tuple[Config, ...]] = field(default_factory=dict)
    measured: str = ""
    is_seed: bool = False

    @property
    def digest(self) -> str:
        return self.kernel.digest


@dataclass(frozen=True)
class Chosen:
    """A task with what is to be exported of it: by device, then by shape key, the candidate that is best there."""

    name: str
    digest: str
    path: Path
    devices: Mapping[str, Mapping[str, Found]]

    @property
    def found(self) -> tuple[Found, ...]:
        """All candidates, each once, in a fixed order."""
        unique = {
            (d, f.digest, config_key(f.config)): f for d, by_shape in self.devices.items() for f in by_shape.values()
        }
        return tuple(unique[key] for key in sorted(unique))

    @property
    def weakest(self) -> Evidence:
        return min((f.evidence for f in self.found), key=LEVELS.index)


def choose(
    databases: Sequence[str | Path], task: str, least: Evidence = Evidence.CONFIRMED, device: str | None = None
) -> Chosen:
    """What there is to export of a task: its name, its digest, or its file. Raises ExportError, StoreError."""
    found: list[Found] = []
    rows: dict[str, dict[str, Any]] = {}
    weaker: set[str] = set()
    for database in databases:
        with Store.open(database, write=False) as store:
            row = _task_row(store, task)
            if row is None:
                continue
            rows.setdefault(row["digest"], row)
            for candidate in _candidates(store, row["digest"], Path(database).name, device):
                if LEVELS.index(candidate.evidence) >= LEVELS.index(least):
                    found.append(candidate)
                else:
                    weaker.add(candidate.evidence.value)
    if len(rows) > 1:
        raise ExportError(
            f"the databases hold {len(rows)} different versions of {task} ({', '.join(sorted(rows))}): "
            "name the digest of one with --task"
        )
    if not rows:
        raise ExportError(f"no database has a task {task!r}: `kernelsearch leaderboard` lists them")
    digest, row = next(iter(rows.items()))
    if not found:
        raise ExportError(_nothing(row["name"], least, weaker, device))
    return Chosen(row["name"], digest, _file(task, row), _by_device(found))


def _nothing(name: str, least: Evidence, weaker: set[str], device: str | None) -> str:
    on = f" on {device}" if device else ""
    if weaker:
        best = max(weaker, key=lambda w: LEVELS.index(Evidence(w)))
        return (
            f"{name} has no {least.value} kernel{on}, only {best} ones: `kernelsearch measure` confirms on a GPU, "
            f"or say --evidence {best} and the package will say so too"
        )
    return f"{name} has no accepted kernel{on} yet: nothing to export"


# ---------------------------------------------------------------- the task


def _task_row(store: Store, task: str) -> dict[str, Any] | None:
    """The row of a task by name, digest or file; of several versions the one whose file is as it was, else the newest run's."""
    if Path(task).suffix == ".py":
        digest = file_digest(Path(task))
        if digest is None:
            raise ExportError(f"no such file: {task}")
        found = store.query("SELECT * FROM task WHERE digest = ?", [digest])
        if not found and store.query("SELECT 1 FROM task WHERE name = ?", [Path(task).stem]):
            raise ExportError(
                f"{task} is not the file that was searched (it was changed since): search it again, "
                "or bring the old one back"
            )
        return found[0] if found else None
    found = store.query(
        """SELECT task.* FROM task LEFT JOIN run ON run.task = task.digest WHERE ? IN (task.name, task.digest)
           GROUP BY task.digest ORDER BY max(run.id) DESC""",
        [task],
    )
    same = [row for row in found if file_digest(Path(row["path"])) == row["digest"]]
    return (same or found or [None])[0]


def file_digest(path: Path) -> str | None:
    """The task digest of a file as it is now (see `tasks.load` and `tasks.bare`), None when it cannot be read."""
    try:
        digest = content_digest(path.read_text(encoding="utf-8"))
        companion = path.with_name(f"{path.stem}_reference.py")
        return content_digest(digest, companion.read_text(encoding="utf-8")) if companion.exists() else digest
    except (OSError, UnicodeDecodeError):
        return None


def _file(task: str, row: Mapping[str, Any]) -> Path:
    path = Path(task) if Path(task).suffix == ".py" else Path(row["path"])
    digest = file_digest(path)
    if digest is None:
        raise ExportError(f"the task's file {path} is not there any more: name it with --task FILE.py")
    if digest != row["digest"]:
        raise ExportError(
            f"{path} was changed since {row['name']} was searched: its kernels were judged against another "
            "reference; search it again, or name the old file with --task FILE.py"
        )
    return path


# ---------------------------------------------------------------- candidates


def _candidates(store: Store, digest: str, database: str, device: str | None) -> Iterable[Found]:
    yield from _confirmed(store, digest, database, device)
    yield from _tried(store, digest, database, device)


def _confirmed(store: Store, digest: str, database: str, device: str | None) -> Iterable[Found]:
    """Every confirmed candidate, and on each device the seed as they tell it."""
    own = _seed(store, digest)
    told: dict[str, list[dict[str, Any]]] = {}
    for finding in store.confirmations(digest, device):
        if finding["status"] != "confirmed" or not finding["shapes"]:
            continue
        row = store.query("SELECT config, kernel FROM candidate WHERE digest = ?", [finding["candidate"]])[0]
        if own is None or finding["candidate"] != own["digest"]:
            yield _of_finding(
                store, finding, row["kernel"], finding["candidate"], json.loads(row["config"]), database, digest
            )
        told.setdefault(finding["device"], []).append(finding)
    for findings in told.values() if own else ():
        others = [f for f in findings if f["candidate"] != own["digest"]]
        finding = seed_finding(others) or next((f for f in findings if f["candidate"] == own["digest"]), None)
        if finding is None:
            continue
        newest = max(findings, key=lambda f: f["measured"])
        whole = {
            **finding,
            "measured": newest["measured"],
            "versions": newest["versions"],
            "kernel": own["kernel"],
            "config": json.loads(own["config"]),
        }
        yield _of_finding(store, whole, own["kernel"], own["digest"], whole["config"], database, digest, is_seed=True)


def _of_finding(
    store: Store,
    finding: Mapping[str, Any],
    kernel: str,
    candidate: str,
    config: Config,
    database: str,
    task: str,
    **more: Any,
) -> Found:
    times = {s["shape"]: s["time_us"] for s in finding["shapes"]}
    return _found(
        store,
        kernel,
        candidate,
        config,
        finding["device"],
        Evidence.CONFIRMED,
        times,
        ratios_of(finding),
        database,
        task,
        versions=finding["versions"],
        finding=finding,
        measured=finding["measured"],
        **more,
    )


def _seed(store: Store, task: str) -> dict[str, Any] | None:
    """The candidate that is the task's own kernel with its own config: digest, kernel, config; None before any search."""
    found = store.query(
        """SELECT c.digest, c.kernel, c.config FROM trial AS t JOIN run ON run.id = t.run JOIN candidate AS c
               ON c.digest = t.candidate WHERE run.task = ? AND t.kind = 'seed' ORDER BY t.run, t.number LIMIT 1""",
        [task],
    )
    return found[0] if found else None


def _tried(store: Store, digest: str, database: str, device: str | None) -> Iterable[Found]:
    """The best trials of each device and evidence, over all shapes and at each, and the seed's."""
    rows = store.query(
        """WITH able AS (
               SELECT t.*, c.config, run.versions AS versions, row_number() OVER (
                   PARTITION BY t.device, t.evidence ORDER BY t.score, t.run, t.number) AS place, row_number() OVER (
                   PARTITION BY t.device, t.evidence, t.kind ORDER BY t.run, t.number) AS of_kind
               FROM trial AS t JOIN run ON run.id = t.run JOIN candidate AS c ON c.digest = t.candidate
               WHERE run.task = :task AND t.score IS NOT NULL AND NOT t.abandoned AND (:device IS NULL OR t.device = :device)),
           timed AS (
               SELECT run, number, row_number() OVER (
                   PARTITION BY device, evidence, json_extract(one.value, '$.shape')
                   ORDER BY json_extract(one.value, '$.time_us'), run, number) AS place
               FROM able, json_each(able.times) AS one)
           SELECT * FROM able
           WHERE place <= :most OR (kind = 'seed' AND of_kind = 1) OR (run, number) IN (SELECT run, number FROM timed WHERE place = 1)
           ORDER BY device, evidence, place""",
        {"task": digest, "device": device, "most": LOOKED_AT},
    )
    seeds: dict[tuple[int, str], dict[str, float]] = {}
    for row in rows:
        times = {t["shape"]: t["time_us"] for t in json.loads(row["times"])}
        seed = seeds.setdefault((row["run"], row["evidence"]), _seed_times(store, row["run"]))
        ratios = {s: t / seed[s] for s, t in times.items() if s in seed}
        yield _found(
            store,
            row["kernel"],
            row["candidate"],
            json.loads(row["config"]),
            row["device"],
            Evidence(row["evidence"]),
            times,
            ratios or dict.fromkeys(times, row["score"]),
            database,
            digest,
            versions=json.loads(row["versions"]),
            measured=row["finished"],
            is_seed=row["kind"] == "seed",
        )


def _seed_times(store: Store, run: int) -> dict[str, float]:
    rows = store.query(
        "SELECT times FROM trial WHERE run = ? AND kind = 'seed' AND times IS NOT NULL ORDER BY number LIMIT 1", [run]
    )
    return {t["shape"]: t["time_us"] for t in json.loads(rows[0]["times"])} if rows else {}


def _found(
    store: Store,
    kernel: str,
    candidate: str,
    config: Config,
    device: str,
    evidence: Evidence,
    times: Mapping[str, float],
    ratios: Mapping[str, float],
    database: str,
    task: str,
    **more: Any,
) -> Found:
    source = store.query("SELECT source FROM kernel WHERE digest = ?", [kernel])[0]["source"]
    trials = store.query(
        """SELECT t.run, t.number, t.verdict, t.stage, t.depth, t.error_ratio, t.referee, t.layers, run.name
           FROM trial AS t JOIN run ON run.id = t.run WHERE t.candidate = ? AND t.verdict = 'accept'
           ORDER BY t.depth <> 'full', t.run, t.number LIMIT 1""",
        [candidate],
    )
    place: dict[str, Any] = {}
    if trials:
        t = trials[0]
        verdict = {
            "verdict": t["verdict"],
            "depth": t["depth"],
            "error_ratio": t["error_ratio"],
            "referee": {"mode": t["referee"], "layers": json.loads(t["layers"])},
        }
        place = {
            "run": t["run"],
            "trial": t["number"],
            "verdict": verdict,
            "run_name": t["name"],
            "ancestors": _ancestors(store, kernel, t["run"]),
        }
    others = {shape: _others(store, kernel, task, device, shape) for shape in times}
    return Found(
        Kernel.parse(source), config, device, evidence, times, ratios, database, others=others, **place, **more
    )


def _ancestors(store: Store, kernel: str, run: int) -> tuple[Ancestor, ...]:
    steps = lineage.ancestors(_tree(store, run), kernel)
    return tuple(Ancestor(s.kernel, s.edit, s.rationale, s.gain) for s in steps)


@lru_cache(maxsize=8)
def _tree(store: Store, run: int) -> dict[str, lineage.Step]:
    return lineage.tree(store, run)


def _others(store: Store, kernel: str, task: str, device: str, shape: str) -> tuple[Config, ...]:
    """The configs of this kernel that were fastest at a shape on a device, best first."""
    timed = _timed(store, kernel, task, device).get(shape, {})
    return tuple(json.loads(c) for c in sorted(timed, key=lambda c: (timed[c], c))[:TUNED])


@lru_cache(maxsize=64)
def _timed(store: Store, kernel: str, task: str, device: str) -> dict[str, dict[str, float]]:
    """The least time of each config of a kernel in microseconds, by shape and config."""
    rows = store.query(
        """SELECT c.config, t.times FROM trial AS t JOIN run ON run.id = t.run JOIN candidate AS c ON c.digest = t.candidate
           WHERE t.kernel = ? AND run.task = ? AND t.device = ? AND t.score IS NOT NULL AND NOT t.abandoned""",
        [kernel, task, device],
    )
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        for time in json.loads(row["times"]):
            by_config = found.setdefault(time["shape"], {})
            by_config[row["config"]] = min(by_config.get(row["config"], math.inf), time["time_us"])
    return found


# ---------------------------------------------------------------- the best, by device and shape


def _by_device(found: Sequence[Found]) -> dict[str, dict[str, Found]]:
    devices: dict[str, dict[str, Found]] = {}
    for device in sorted({f.device for f in found}):
        here = [f for f in found if f.device == device]
        strongest = max((f.evidence for f in here), key=LEVELS.index)
        here = [f for f in here if f.evidence is strongest]
        seed = next((f for f in here if f.is_seed), None)
        here = [f for f in here if not f.is_seed or f is seed]
        ahead = LEAST_GAIN if strongest is Evidence.CONFIRMED else MARGIN
        by_shape = best(here, lambda f: f.ratios or f.times, _plainness, seed, ahead)
        devices[device] = {shape: by_shape[shape] for shape in sorted(by_shape, key=_shape_order)}
    return devices


def _plainness(found: Found) -> tuple[int, str, str]:
    """Of equally fast kernels the one with the fewest edits goes first; the rest makes the order complete."""
    return len(found.ancestors), found.digest, config_key(found.config)


def _shape_order(key: str) -> tuple[str, int]:
    kind, _, number = key.partition(":")
    return kind, int(number) if number.isdigit() else 0
