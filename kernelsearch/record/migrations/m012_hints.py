"""The rules of hints: later columns of hints."""

from __future__ import annotations

from kernelsearch.record.migrations.m005_to_m011 import migrations
from kernelsearch.record.sqlite_library import Database


@migrations()
def m012_hints_as_rules(db: Database) -> None:
    """The rule's name, its numbers in a sentence, the share of the time that it costs, and what that assumes."""
    for column in ("name TEXT NOT NULL DEFAULT ''", "why TEXT NOT NULL DEFAULT ''", "lost REAL NOT NULL DEFAULT 0",
                   "assuming TEXT NOT NULL DEFAULT ''"):  # fmt: skip
        db.execute(f"ALTER TABLE hint ADD COLUMN {column}")
