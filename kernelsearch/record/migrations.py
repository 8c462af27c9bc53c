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


@migrations()
def m013_first_of_equals(db: Database) -> None:
    """Of equal scores the first trial leads, as in the search; a mean time over several shapes says nothing of them."""
    (sql,) = db.conn.execute("SELECT sql FROM sqlite_master WHERE name = 'leaderboard'").fetchone()
    db.execute("DROP VIEW leaderboard")
    db.execute(sql.replace("BY t.score, t.time_us", "BY t.score").replace("best.score, best.time_us)", "best.score)"))


@migrations()
def m014_shapes_apart(db: Database) -> None:
    """Runs of some of a task's shapes (`--shape`) are ranked by themselves: their speed-ups are not of the others."""
    (sql,) = db.conn.execute("SELECT sql FROM sqlite_master WHERE name = 'leaderboard'").fetchone()
    db.execute("DROP VIEW leaderboard")
    shapes = "coalesce(json_extract(run.settings, '$.shapes'), '[]')"
    for old, new in (
        ("t.evidence, t.kernel, t.score", f"t.evidence, {shapes} AS shapes, t.kernel, t.score"),
        ("run.task, t.device, t.evidence, t.kernel\n", f"run.task, t.device, t.evidence, t.kernel, {shapes}\n"),
        ("best.task_digest, best.device, best.evidence", "best.task_digest, best.device, best.evidence, best.shapes"),
        ("best.task_digest, own.candidate", "best.task_digest, best.shapes, task.shapes AS all_shapes, own.candidate"),
    ):
        sql = sql.replace(old, new)
    db.execute(sql)
