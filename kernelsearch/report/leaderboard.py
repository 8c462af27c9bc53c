"""The best kernels of a database, as rows: for programs as JSON and CSV, for people and pipes as text."""

from __future__ import annotations

import csv
import io
import json

from kernelsearch.core.errors import StoreError
from kernelsearch.measure.timing import by_shape
from kernelsearch.record.rows import geometric_mean
from kernelsearch.record.store import Store
from kernelsearch.report.board_text import Row, as_text

__all__ = ["COLUMNS", "Row", "as_csv", "as_json", "as_text", "gains_by_shape", "must_know", "rows"]

COLUMNS = (
    "task",
    "device",
    "evidence",
    "rank",
    "kernel",
    "speedup",
    "score",
    "time_us",
    "edit",
    "config",
    "parent",
    "proposer",
    "run",
    "number",
    "confirmed_us",
    "vs_fastest",
    "vs_fastest_low",
    "vs_fastest_high",
    "fastest",
    "vs_seed_low",
    "vs_seed_high",
    "roofline",
    "clocks",
    "versions",
)
"""From `vs_fastest` on only confirmed rows have values: against the fastest baselines, and intervals."""


def rows(store: Store, task: str | None = None, device: str | None = None, limit: int | None = None) -> list[Row]:
    """A kernel's best trial per task, device and evidence, best first; task is a name or digest.

    score is time over the seed's time and speedup its inverse; time_us the geometric mean over the timed
    shapes, as the search saw it; confirmed_us the same under the confirmed protocol, None where it was not
    run; limit counts per task, device and evidence. Confirmed kernels come first, ranked by what they gain over
    the fastest baseline; their score is the confirmed one.
    """
    found = store.query(
        """SELECT leaderboard.*, run.proposer FROM leaderboard JOIN run ON run.id = leaderboard.run
           WHERE (:task IS NULL OR :task IN (leaderboard.task, task_digest)) AND (:device IS NULL OR device = :device)
             AND (:limit IS NULL OR rank <= :limit)
           ORDER BY leaderboard.task, task_digest, device, CASE evidence WHEN 'confirmed' THEN 0 WHEN 'measured' THEN 1 ELSE 2 END,
                    rank, leaderboard.run, number""",
        {"task": task, "device": device, "limit": limit},
    )
    for row in found:
        row["config"] = json.loads(row["config"])
        row["confirmed_us"] = _confirmed(store, row) if row["confirmed_shapes"] else None
    whole = [*_confirmed_rows(store, task, device, limit), *found]
    return [{name: row.get(name) for name in COLUMNS} for row in whole]


def must_know(store: Store, task: str | None, device: str | None) -> None:
    """Raises StoreError when a task or device that was asked for is not in the database at all, and says which are."""
    others = None if task is None else store.instead_of(task)
    if others is not None:
        raise StoreError(f"{store.path} has no task {task!r}: it has {', '.join(others) or 'none'}")
    devices = {row["device"] for row in store.query("SELECT DISTINCT device FROM trial WHERE device IS NOT NULL")}
    devices |= {
        row["device"] for row in store.query("SELECT device FROM confirmation UNION SELECT target AS device FROM run")
    }
    if device is not None and device not in devices:
        raise StoreError(
            f"{store.path} has nothing of device {device!r}: it has {', '.join(sorted(devices)) or 'none'}"
        )


def _confirmed_rows(store: Store, task: str | None, device: str | None, limit: int | None) -> list[Row]:
    """A row for every kernel whose newest confirmation holds at all shapes; one kernel's best config counts."""
    told = {
        r["digest"]: r
        for r in store.query(
            """SELECT candidate.digest, task.name AS task, kernel.edit, kernel.parent, found.run, found.number, run.proposer
               FROM candidate JOIN task ON task.digest = candidate.task JOIN kernel ON kernel.digest = candidate.kernel
               LEFT JOIN (SELECT candidate, run, number, min(finished) FROM trial GROUP BY candidate) AS found
                   ON found.candidate = candidate.digest
               LEFT JOIN run ON run.id = found.run
               WHERE candidate.digest IN (SELECT candidate FROM confirmation)"""
        )
    }
    ranks: dict[tuple[str, str], int] = {}
    seen, rows = set(), []
    for found in store.confirmations(task, device):
        about = told[found["candidate"]]
        place, key = (about["task"], found["device"]), (about["task"], found["device"], found["kernel"])
        if found["status"] != "confirmed" or not found["vs_seed"] or found.get("champion_at") or key in seen:
            continue
        seen.add(key)
        ranks[place] = ranks.get(place, 0) + 1
        if limit is None or ranks[place] <= limit:
            rows.append(_confirmed_row(found, about, ranks[place]))
    return rows


def gains_by_shape(store: Store, task: str | None = None, device: str | None = None) -> dict[tuple[str, str], Row]:
    """What running the best confirmed candidate of each shape gains (`measure.by_shape.gain`), by task and device.

    Left out where two versions of a task bear its name, and where not every shape of some finding has its best.
    """
    groups: dict[tuple[str, str], dict[str, list[Row]]] = {}
    tasks = {
        r["digest"]: r
        for r in store.query("SELECT c.digest, c.task, t.name FROM candidate AS c JOIN task AS t ON t.digest = c.task")
    }
    for found in store.confirmations(task, device):
        about = tasks[found["candidate"]]
        groups.setdefault((about["name"], found["device"]), {}).setdefault(about["task"], []).append(found)
    gained = {
        place: by_shape.gain(by_shape.of_findings(next(iter(own.values()))))
        for place, own in groups.items()
        if len(own) == 1
    }
    return {place: gain for place, gain in gained.items() if gain}


def _confirmed_row(found: Row, about: Row, rank: int) -> Row:
    seed, fastest = found["vs_seed"], found["vs_fastest"] or {}
    return {
        **about,
        "device": found["device"],
        "evidence": "confirmed",
        "rank": rank,
        "kernel": found["kernel"],
        "speedup": seed["ratio"],
        "score": 1 / seed["ratio"],
        "time_us": found["time_us"],
        "config": found["config"],
        "confirmed_us": found["time_us"],
        "vs_fastest": fastest.get("ratio"),
        "vs_fastest_low": fastest.get("low"),
        "vs_fastest_high": fastest.get("high"),
        "vs_seed_low": seed["low"],
        "vs_seed_high": seed["high"],
        "fastest": ", ".join(dict.fromkeys(s["fastest"] for s in found["shapes"])),
        "roofline": found["roofline"],
        "clocks": {s["label"]: s["clocks"] for s in found["shapes"]},
        "versions": found["versions"],
    }


def _confirmed(store: Store, row: Row) -> float | None:
    """The newest confirmed time per shape, as a geometric mean in microseconds; None where not all were confirmed."""
    times = store.query(
        """SELECT shape, time_us FROM measurement WHERE candidate = ? AND device = ? AND evidence = 'confirmed'
           ORDER BY measured, rowid""",
        [row["candidate"], row["device"]],
    )
    known = {t["shape"]: t["time_us"] for t in times}
    (told,) = store.query("SELECT times FROM trial WHERE run = ? AND number = ?", [row["run"], row["number"]])
    timed = {t["shape"] for t in json.loads(told["times"])}
    return geometric_mean(list(known.values())) if timed <= set(known) else None


def as_json(found: list[Row]) -> str:
    return json.dumps(found, indent=2)


def as_csv(found: list[Row]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in found:
        texts = {n: json.dumps(row[n]) for n in ("config", "clocks", "versions") if row[n] is not None}
        writer.writerow({**row, **texts})
    return out.getvalue()
