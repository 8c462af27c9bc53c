"""The schema (`schema.sql`), and what changes it later, as an append-only list of functions: a released one stays."""

from __future__ import annotations

from importlib import resources

from kernelsearch.record.sqlite_library import Database, Migrations

FIRST = "m012_hints_as_rules"
"""The name of the schema: databases that came to it in twelve steps, until 2026-11-26, have it too."""

migrations = Migrations("kernelsearch")
"""All migrations in order; each `@migrations()` below adds one."""


@migrations(name=FIRST)
def create_tables(db: Database) -> None:
    text = resources.files("kernelsearch.record").joinpath("schema.sql").read_text()
    for statement in text.split(";\n"):
        db.execute(statement)
    db.table("kernel").enable_fts(["source", "rationale"], create_triggers=True)
