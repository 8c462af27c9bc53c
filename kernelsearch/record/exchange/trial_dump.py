"""A database's trials for other programs: as CSV with one row each, and as T4 results."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from kernelsearch.record.exchange.tuner_files import KERNEL, MILLISECONDS
from kernelsearch.record.rows import Row
from kernelsearch.record.store import OF_TASK, Store

COLUMNS = tuple(
    "task run number kernel parent edit proposer kind config verdict stage reason evidence device score time_us "
    "abandoned seconds finished".split()
)

_INVALIDITY = {"reject-compile": "compile", "reject-static": "constraints", "timeout": "timeout", "crash": "runtime"}
"""Verdicts in T4's words; every other rejection is about what the kernel computes: `correctness`."""


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


def as_t4(trials: list[Row]) -> str:
    """T4 results 1.0.0: `kernel` is one of the configuration's entries, times are in milliseconds."""
    results = [_t4_result(row) for row in trials]
    head = {"schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"}}
    return json.dumps({**head, "results": results}, indent=1)


def _t4_result(row: Row) -> Row:
    invalidity = "correct" if row["verdict"] == "accept" else _INVALIDITY.get(row["verdict"], "correctness")
    times = [] if row["time_us"] is None else [row["time_us"] / MILLISECONDS]
    about = ("task", "run", "number", "edit", "evidence", "device")
    return {
        "timestamp": row["finished"],
        "configuration": {KERNEL: row["kernel"], **json.loads(row["config"])},
        "objectives": ["time"],
        "times": {"runtimes": times, "framework": row["seconds"] * 1000},
        "invalidity": invalidity,
        "correctness": 0 if invalidity == "correctness" else 1,
        "measurements": [
            *({"name": "time", "value": time, "unit": "ms"} for time in times),
            *({"name": name, "value": row[name], "unit": ""} for name in about if row[name] is not None),
        ],
    }
