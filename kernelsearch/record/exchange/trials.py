"""A database's trials for other programs: CSV with a row each, and T4 results."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from kernelsearch.record.exchange.tuners import MILLISECONDS, SCHEMA_VERSION
from kernelsearch.record.store import Store

COLUMNS = (
    "task",
    "run",
    "number",
    "kernel",
    "parent",
    "edit",
    "proposer",
    "kind",
    "config",
    "verdict",
    "stage",
    "reason",
    "evidence",
    "device",
    "score",
    "time_us",
    "abandoned",
    "seconds",
    "finished",
)

_INVALIDITY = {"reject-compile": "compile", "reject-static": "constraints", "timeout": "timeout", "crash": "runtime"}
"""Verdicts in T4's words; every other rejection is about what the kernel computes: `correctness`."""


def rows(store: Store, task: str | None = None, device: str | None = None) -> list[dict[str, Any]]:
    """Every trial by run and number; task is a name or digest, device a device or target."""
    return store.query(
        """SELECT task.name AS task, t.run, t.number, t.kernel, s.parent, t.edit, run.proposer, t.kind, c.config, t.verdict,
                  t.stage, t.reason, t.evidence, coalesce(t.device, run.target) AS device, t.score, t.time_us, t.abandoned,
                  t.seconds, t.finished
           FROM trial AS t JOIN run ON run.id = t.run JOIN task ON task.digest = run.task
           JOIN candidate AS c ON c.digest = t.candidate
           LEFT JOIN structure AS s ON s.run = t.run AND s.kernel = t.kernel
           WHERE (:task IS NULL OR :task IN (task.name, task.digest)) AND (:device IS NULL OR :device IN (t.device, run.target))
           ORDER BY t.run, t.number""",
        {"task": task, "device": device},
    )


def as_csv(found: list[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return out.getvalue()


def as_t4(found: list[dict[str, Any]]) -> str:
    """T4 results 1.0.0: `kernel` is one of the configuration's entries, times are in milliseconds."""
    return json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "metadata": {"timeunit": "milliseconds"},
            "results": [_result(row) for row in found],
        },
        indent=1,
    )


def _result(row: dict[str, Any]) -> dict[str, Any]:
    invalidity = "correct" if row["verdict"] == "accept" else _INVALIDITY.get(row["verdict"], "correctness")
    measured = (
        [] if row["time_us"] is None else [{"name": "time", "value": row["time_us"] / MILLISECONDS, "unit": "ms"}]
    )
    about = {
        name: row[name] for name in ("task", "run", "number", "edit", "evidence", "device") if row[name] is not None
    }
    return {
        "timestamp": row["finished"],
        "configuration": {"kernel": row["kernel"], **json.loads(row["config"])},
        "objectives": ["time"],
        "times": {"runtimes": [m["value"] for m in measured], "framework": row["seconds"] * 1000},
        "invalidity": invalidity,
        "correctness": 0 if invalidity == "correctness" else 1,
        "measurements": [*measured, *({"name": n, "value": v, "unit": ""} for n, v in about.items())],
    }
