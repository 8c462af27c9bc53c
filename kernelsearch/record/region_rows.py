"""Models and their regions as rows of the database, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kernelsearch.record.rows import Row, dump_json, now
from kernelsearch.record.store import Store


def add_model(store: Store, model: Row, regions: Sequence[Row], uses: Sequence[Row]) -> None:
    """Stores a look at a model in place of the last one on this device."""
    where = [model["name"], model["device"]]
    with store.transaction():
        store.database.execute("DELETE FROM region_use WHERE model = ? AND device = ?", where)
        store.add("model", {**model, "seen": now()}, "OR REPLACE")
        for region in regions:
            store.add("region", region, "OR IGNORE")
        for use in uses:
            store.add("region_use", {**use, "sizes": dump_json(use["sizes"])})


def load_regions(store: Store) -> dict[str, Row]:
    return {row["digest"]: row for row in store.query("SELECT * FROM region")}


def load_uses(store: Store) -> list[Row]:
    """Where regions are used, with sizes as a mapping, the kind of evidence, and the share of the model's step."""
    rows = store.query(
        """SELECT u.*, m.evidence, m.step_us, u.uses * u.time_us / m.step_us AS share
           FROM region_use AS u JOIN model AS m ON m.name = u.model AND m.device = u.device"""
    )
    return [{**row, "sizes": json.loads(row["sizes"])} for row in rows]


def refuse_region(store: Store, digest: str, why: str) -> None:
    """Stores why a region cannot be searched."""
    with store.transaction():
        store.database.execute("UPDATE region SET refusal = ? WHERE digest = ?", [why, digest])


def add_placement(store: Store, row: Mapping[str, Any]) -> None:
    """Stores what a region's kernel gained in its model."""
    with store.transaction():
        store.add("placement", {**row, "placed": now()}, "OR REPLACE")


def load_placements(store: Store) -> list[Row]:
    return store.query("SELECT * FROM placement ORDER BY placed")


def find_best(store: Store, task: str) -> Row | None:
    """A task's (name's) best accepted score and its trials over all runs; None before its first run."""
    rows = store.query(
        """SELECT min(CASE WHEN t.verdict = 'accept' AND NOT t.abandoned THEN t.score END) AS score,
                  count(*) AS trials, max(run.finished) AS finished
           FROM trial AS t JOIN run ON run.id = t.run JOIN task ON task.digest = run.task WHERE task.name = ?""",
        [task],
    )
    return rows[0] if rows and rows[0]["trials"] else None
