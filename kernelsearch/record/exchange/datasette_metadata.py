"""Metadata of the database for Datasette: labels, facets, sorting, prepared queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TABLES: dict[str, dict[str, Any]] = {
    "trial": {
        "description": "One candidate a row: what was proposed, the verdict, the time.",
        "facets": ["verdict", "edit", "evidence", "device", "kind"],
        "sort_desc": "finished",
        "columns": {
            "score": "time over the seed's time, geometric mean over the timed shapes: below 1 is faster",
            "time_us": "microseconds, geometric mean over the timed shapes",
            "error_ratio": "error over the error that is allowed",
            "seconds": "what evaluating the candidate cost",
        },
    },
    "kernel": {
        "description": "Sources by content digest; search reads source and rationale.",
        "label_column": "name",
        "facets": ["edit"],
        "sort_desc": "created",
    },
    "candidate": {"description": "A kernel with a config.", "label_column": "name"},
    "task": {"description": "Task files that were searched.", "label_column": "name"},
    "run": {
        "description": "Searches.",
        "label_column": "name",
        "facets": ["strategy", "proposer", "target"],
        "sort_desc": "started",
    },
    "structure": {"description": "Where each kernel of a run came from."},
    "measurement": {
        "description": "The newest time per candidate, shape, device, protocol and versions.",
        "facets": ["device", "evidence", "shape"],
    },
    "confirmation": {
        "description": "Findings of the confirmed protocol with their intervals.",
        "facets": ["device", "status", "faster"],
    },
    "baseline": {"description": "What PyTorch and others take, confirmed.", "facets": ["device", "name"]},
    "ceiling": {"description": "What a device can do at best, measured."},
    "hint": {"description": "Where a candidate's time goes, and what to change.", "facets": ["bottleneck"]},
    "leaderboard": {
        "description": "A kernel's best trial per task, device and evidence.",
        "facets": ["task", "device", "evidence"],
        "sort": "rank",
    },
    "lineage": {
        "description": "Each kernel of a run with its parent and what the step gained.",
        "facets": ["edit", "proposer"],
        "sort_desc": "gain",
    },
}

QUERIES: dict[str, dict[str, str]] = {
    "edits": {
        "title": "What each edit earned",
        "sql": "select edit, count(*) as tried, sum(accepted > 0) as accepted, sum(gain > 1.01) as improved, "
        "round(max(gain), 3) as best_gain from lineage where edit is not null "
        "group by edit order by improved desc, best_gain desc",
    },
    "rejections": {
        "title": "Why candidates were rejected",
        "sql": "select verdict, stage, reason, count(*) as trials from trial where verdict <> 'accept' "
        "group by verdict, stage, reason order by trials desc",
    },
    "progress": {
        "title": "Best so far in a run",
        "sql": "select number, min(score) over (partition by run order by number) as best_score, score, edit, kernel "
        "from trial where run = :run and score is not null and not abandoned order by number",
    },
}


def build_metadata(database: Path) -> dict[str, Any]:
    """The content of Datasette's metadata file for this database."""
    tables = {database.stem: {"tables": TABLES, "queries": QUERIES}}
    return {"title": f"kernelsearch: {database.name}", "databases": tables}
