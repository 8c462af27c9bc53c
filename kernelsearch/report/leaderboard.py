"""The best kernels of a database: rows for programs, a table of at most 80 columns for people and pipes."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from kernelsearch.record.rows import geometric_mean
from kernelsearch.record.store import Store
from kernelsearch.report import words

Row = dict[str, Any]
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
    "run",
    "number",
    "confirmed_us",
)


def rows(store: Store, task: str | None = None, device: str | None = None, limit: int | None = None) -> list[Row]:
    """A kernel's best trial per task, device and evidence, best first; task is a name or digest.

    score is time over the seed's time and speedup its inverse; time_us the geometric mean over the timed
    shapes, as the search saw it; confirmed_us the same under the confirmed protocol, None where it was not
    run; limit counts per task, device and evidence.
    """
    found = store.query(
        """SELECT * FROM leaderboard
           WHERE (?1 IS NULL OR ?1 IN (task, task_digest)) AND (?2 IS NULL OR device = ?2)
             AND (?3 IS NULL OR rank <= ?3)
           ORDER BY task, task_digest, device, CASE evidence WHEN 'confirmed' THEN 0 WHEN 'measured' THEN 1 ELSE 2 END,
                    rank, run, number""",
        [task, device, limit],
    )
    for row in found:
        row["config"] = json.loads(row["config"])
        row["confirmed_us"] = _confirmed(store, row) if row["confirmed_shapes"] else None
    return [{name: row[name] for name in COLUMNS} for row in found]


def _confirmed(store: Store, row: Row) -> float | None:
    """The newest confirmed time per shape, as a geometric mean in microseconds."""
    times = store.query(
        """SELECT shape, time_us FROM measurement WHERE candidate = ? AND device = ? AND evidence = 'confirmed'
           ORDER BY measured, rowid""",
        [row["candidate"], row["device"]],
    )
    return geometric_mean(list({t["shape"]: t["time_us"] for t in times}.values()))


def as_json(found: list[Row]) -> str:
    return json.dumps(found, indent=2)


def as_csv(found: list[Row]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in found:
        writer.writerow({**row, "config": json.dumps(row["config"])})
    return out.getvalue()


def as_text(found: list[Row], width: int = 80) -> str:
    """One table per task, device and evidence; the evidence stands in each title and over each speedup."""
    from rich.console import Console

    if not found:
        return "no accepted kernel yet\n"
    out = io.StringIO()
    console = Console(file=out, width=width, no_color=True, highlight=False)
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in found:
        groups.setdefault((row["task"], row["device"], row["evidence"]), []).append(row)
    for i, ((task, device, evidence), members) in enumerate(groups.items()):
        if i:
            console.print()
        console.print(f"{task} on {device}, {evidence}")
        console.print(_table(members, evidence))
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def _table(members: list[Row], evidence: str):
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("kernel", no_wrap=True)
    table.add_column(f"x seed ({evidence})", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    confirmed = any(row["confirmed_us"] for row in members)
    if confirmed:
        table.add_column("confirmed", justify="right", no_wrap=True)
    table.add_column("last edit", overflow="fold")
    table.add_column("config", overflow="fold")
    for row in members:
        cells = [str(row["rank"]), row["kernel"][:8], f"{row['speedup']:.2f}", words.time(row["time_us"])]
        if confirmed:
            cells.append(words.time(row["confirmed_us"]) if row["confirmed_us"] else "-")
        table.add_row(*cells, row["edit"] or "seed", words.config(row["config"]))
    return table
