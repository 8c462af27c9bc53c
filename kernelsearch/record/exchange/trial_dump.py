"""A database's trials for other programs, as CSV with one row each."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from kernelsearch.record.rows import Row
from kernelsearch.record.store import OF_TASK, Store

COLUMNS = tuple(
    "task run number kernel parent edit proposer kind config verdict stage reason evidence device score time_us "
    "abandoned seconds finished".split()
)


def load_rows(store: Store, task: str | None = None, device: str | None = None) -> list[Row]:
    """Every trial by run and number; task is a name or digest, device a device or target."""
    return store.query(
        f"""SELECT task.name AS task, t.run, t.number, t.kernel, s.parent, t.edit, run.proposer, t.kind, c.config,
                  t.verdict, t.stage, t.reason, t.evidence, coalesce(t.device, run.target) AS device, t.score,
                  t.time_us, t.abandoned, t.seconds, t.finished
           FROM trial AS t JOIN run ON run.id = t.run JOIN task ON task.digest = run.task
           JOIN candidate AS c ON c.digest = t.candidate
           LEFT JOIN structure AS s ON s.run = t.run AND s.kernel = t.kernel
           WHERE {OF_TASK} AND (:device IS NULL OR :device IN (t.device, run.target))
           ORDER BY t.run, t.number""",
        {"task": task, "device": device},
    )


def as_csv(rows: list[Row], columns: Sequence[str] = COLUMNS) -> str:
    """The rows as CSV; values that are dicts become JSON."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: json.dumps(v) if isinstance(v, dict) else v for name, v in row.items()})
    return out.getvalue()
