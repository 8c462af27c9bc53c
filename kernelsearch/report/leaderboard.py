"""The best kernels of a database as rows: for programs as JSON and CSV, for people and pipes as text."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from kernelsearch.core.errors import StoreError
from kernelsearch.core.types import Config
from kernelsearch.measure.timing import by_shape
from kernelsearch.record import queries
from kernelsearch.record.confirmation_rows import CONFIRMED, fastest_names, interval_columns
from kernelsearch.record.rows import Row, geometric_mean
from kernelsearch.record.store import IMPORTED, Store
from kernelsearch.report.findings import is_champion
from kernelsearch.report.leaderboard_text import as_text
from kernelsearch.report.tables import load_table

__all__ = ["COLUMNS", "Row", "as_csv", "as_json", "as_text", "build_rows", "compute_gains_by_shape", "refuse_unknown"]


@dataclass(frozen=True)
class LeaderboardRow:
    """One kernel's best at a task, on a device, with its evidence (`build_rows`).

    From `vs_fastest` to versions only confirmed rows have values: against the fastest baselines, and intervals. Others:
    how many configs of its own list the seed was tuned over; of a first row, its run's table (`report/tables.py`); the
    shapes that the run was narrowed to by `--shape`, in words, or "".
    """

    task: str
    device: str
    evidence: str
    rank: int
    kernel: str
    speedup: float
    score: float
    time_us: float | None
    edit: str | None
    config: Config
    parent: str | None
    proposer: str | None
    run: int
    number: int
    confirmed_us: float | None
    vs_fastest: float | None
    vs_fastest_low: float | None
    vs_fastest_high: float | None
    fastest: str | None
    vs_seed_low: float | None
    vs_seed_high: float | None
    roofline: float | None
    clocks: Any
    versions: Any
    seed_configs: int
    table: Mapping[str, Any] | None
    shapes: str


COLUMNS = tuple(field.name for field in fields(LeaderboardRow))


def build_rows(store: Store, task: str | None = None, device: str | None = None, limit: int | None = None) -> list[Row]:
    """A kernel's best trial per task, device and evidence, best first; task is a name or digest.

    score is time over the seed's time and speedup its inverse; time_us the geometric mean over the timed shapes, as the
    search saw it; of several both count the seed where it is faster. confirmed_us is the kernel's own mean under the
    confirmed protocol, None where it was not run; limit counts per task, device and evidence. Confirmed kernels come
    first, ranked by what they gain over the fastest baseline; their score is the confirmed one.
    """
    configs = {run.id: run.seed_configs for run in store.load_runs()}
    searched = queries.ranked_kernels(store, task, device, limit)
    tables = {number: load_table(store, number) for number in dict.fromkeys(row["run"] for row in searched)}
    for row in searched:
        if table := tables[row["run"]]:
            row["time_us"] = row["score"] * table["seed_us"]
            row["table"] = table if row["rank"] == 1 else None
        row["confirmed_us"] = _confirmed_us(store, row) if row["confirmed_shapes"] else None
        row["seed_configs"] = configs.get(row["run"], 0)
    whole = [*_confirmed_rows(store, task, device, limit), *searched]
    return [{name: row.get(name) for name in COLUMNS} for row in whole]


def refuse_unknown(store: Store, task: str | None, device: str | None) -> None:
    """Raises StoreError, naming those that are there, if a task or a device is not in the database at all."""
    if task is not None:
        store.refuse_unknown_task(task)
    devices = queries.devices(store)
    if device is not None and device not in devices:
        known = ", ".join(sorted(devices)) or "none"
        raise StoreError(f"{store.path} has nothing of device {device!r}: it has {known}")


def _confirmed_rows(store: Store, task: str | None, device: str | None, limit: int | None) -> list[Row]:
    """A row for every kernel whose newest confirmation is valid at all shapes; a kernel's best config counts."""
    candidates = queries.confirmed_candidates(store)
    ranks: Counter[tuple[str, str]] = Counter()
    seen, rows = set(), []
    for finding in store.load_confirmations(task, device):
        candidate = candidates[finding["candidate"]]
        place = (candidate["task"], finding["device"])
        key = (*place, finding["kernel"])
        if finding["status"] != CONFIRMED or not finding["vs_seed"] or is_champion(finding) or key in seen:
            continue
        seen.add(key)
        ranks[place] += 1
        if limit is None or ranks[place] <= limit:
            rows.append(_confirmed_row(finding, candidate, ranks[place]))
    return rows


def compute_gains_by_shape(
    store: Store, task: str | None = None, device: str | None = None
) -> dict[tuple[str, str], Row]:
    """The gain of running the best confirmed candidate of each shape (`by_shape.compute_gain`), by task and device.

    Left out where two versions of a task have the same name, and where not every shape of some finding has its best.
    """
    groups: dict[tuple[str, str], dict[str, list[Row]]] = {}
    candidates = queries.confirmed_candidates(store)
    for finding in store.load_confirmations(task, device):
        candidate = candidates[finding["candidate"]]
        versions = groups.setdefault((candidate["task"], finding["device"]), {})
        versions.setdefault(candidate["task_digest"], []).append(finding)
    gains = {
        place: by_shape.compute_gain(by_shape.choose_findings(found, store.find_most_kernels(digest)))
        for place, versions in groups.items()
        if len(versions) == 1
        for digest, found in versions.items()
    }
    return {place: gain for place, gain in gains.items() if gain}


def _confirmed_row(finding: Row, candidate: Row, rank: int) -> Row:
    speedup = finding["vs_seed"]["ratio"]
    return {
        **candidate,
        **interval_columns("vs_seed", finding["vs_seed"]),
        **interval_columns("vs_fastest", finding["vs_fastest"]),
        **{name: finding[name] for name in ("device", "kernel", "time_us", "config", "roofline", "versions")},
        "evidence": CONFIRMED,
        "proposer": (candidate["proposer"] or "").removesuffix(IMPORTED) + IMPORTED * bool(finding.get("imported")),
        "rank": rank,
        "speedup": speedup,
        "score": 1 / speedup,
        "confirmed_us": finding["time_us"],
        "seed_configs": finding.get("seed_configs", 0),
        "shapes": "",
        "fastest": fastest_names(finding),
        "clocks": {shape["label"]: shape["clocks"] for shape in finding["shapes"]},
    }


def _confirmed_us(store: Store, row: Row) -> float | None:
    """The geometric mean of the newest confirmed times in microseconds; None unless all shapes were confirmed."""
    times = queries.confirmed_times(store, row["candidate"], row["device"])
    timed = queries.trial_times(store, row["run"], row["number"])
    return geometric_mean(list(times.values())) if timed.keys() <= times.keys() else None


def as_json(rows: list[Row]) -> str:
    return json.dumps(rows, indent=2)


def as_csv(rows: list[Row]) -> str:
    """The rows as CSV; values that are dicts become JSON."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: json.dumps(v) if isinstance(v, dict) else v for name, v in row.items()})
    return out.getvalue()
