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
    whole = """SELECT count(DISTINCT json_extract(value, '$.key')) FROM json_each(task.shapes)
               WHERE json_extract(value, '$.key') LIKE 'timed:%'"""
    shapes = f"""CASE WHEN json_array_length(run.settings, '$.shapes') < ({whole})
                      THEN json_extract(run.settings, '$.shapes') ELSE '[]' END"""
    for old, new in (
        ("JOIN run ON run.id = t.run\n", "JOIN run ON run.id = t.run JOIN task ON task.digest = run.task\n"),
        ("t.evidence, t.kernel, t.score", f"t.evidence, {shapes} AS shapes, t.kernel, t.score"),
        ("run.task, t.device, t.evidence, t.kernel\n", f"run.task, t.device, t.evidence, t.kernel, {shapes}\n"),
        ("best.task_digest, best.device, best.evidence", "best.task_digest, best.device, best.evidence, best.shapes"),
        ("best.task_digest, own.candidate", "best.task_digest, best.shapes, task.shapes AS all_shapes, own.candidate"),
    ):
        sql = sql.replace(old, new)
    db.execute(sql)


@migrations()
def m015_regions(db: Database) -> None:
    """Models whose compiled graphs were looked at, their regions, and what a region's kernel gained in place."""
    for statement in _REGIONS.split(";\n"):
        db.execute(statement)


@migrations()
def m016_plans(db: Database) -> None:
    """A task's ideas, and lessons that somebody wrote down; what became of both is in the trials."""
    for statement in _PLANS.split(";\n"):
        db.execute(statement)


_PLANS = """
CREATE TABLE idea (
    task TEXT NOT NULL REFERENCES task(digest),
    device TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL, -- the idea in a sentence
    why TEXT NOT NULL,
    above TEXT NOT NULL, -- id of the idea that it is a step of, or empty
    expected REAL, -- time before over time after
    doubt TEXT NOT NULL, -- why somebody takes it for wrong, or empty
    author TEXT NOT NULL,
    origin TEXT NOT NULL, -- when the run that it comes from began, or empty
    PRIMARY KEY (task, device, id)
) STRICT;
CREATE TABLE lesson ( -- what is to be learnt from a kernel
    task TEXT NOT NULL REFERENCES task(digest),
    device TEXT NOT NULL,
    kernel TEXT NOT NULL REFERENCES kernel(digest),
    name TEXT NOT NULL,
    author TEXT NOT NULL,
    PRIMARY KEY (task, device, kernel)
) STRICT"""

_REGIONS = """
CREATE TABLE model ( -- the newest look per script and device
    name TEXT NOT NULL, -- the script with its arguments
    device TEXT NOT NULL,
    evidence TEXT NOT NULL, -- measured or estimated
    torch TEXT NOT NULL,
    step_us REAL NOT NULL, -- of all compiled graphs
    product_us REAL NOT NULL,
    attention_us REAL NOT NULL,
    region_us REAL NOT NULL,
    seen TEXT NOT NULL,
    PRIMARY KEY (name, device)
) STRICT;
CREATE TABLE region (
    digest TEXT PRIMARY KEY,
    name TEXT NOT NULL, -- its first operations
    torch TEXT NOT NULL, -- the version whose graphs have it
    code TEXT NOT NULL,  -- its task without sizes
    refusal TEXT NOT NULL DEFAULT '' -- why it cannot be searched
) STRICT;
CREATE TABLE region_use (
    region TEXT NOT NULL REFERENCES region(digest),
    model TEXT NOT NULL,
    device TEXT NOT NULL,
    direction TEXT NOT NULL, -- forward or backward
    sizes TEXT NOT NULL, -- JSON: {name: size}
    uses INTEGER NOT NULL,
    bytes INTEGER NOT NULL, -- read and written
    time_us REAL NOT NULL, -- of one use
    least_us REAL NOT NULL, -- what bytes and flops allow
    PRIMARY KEY (region, model, device, direction, sizes),
    FOREIGN KEY (model, device) REFERENCES model(name, device)
) STRICT;
CREATE TABLE placement ( -- a region's kernel in its model
    region TEXT NOT NULL REFERENCES region(digest),
    model TEXT NOT NULL,
    device TEXT NOT NULL,
    kernel TEXT NOT NULL, -- digest
    used INTEGER NOT NULL,
    reason TEXT NOT NULL, -- why it is not used, or empty
    gain REAL, -- the graphs' time without it over that with it
    gain_low REAL,
    gain_high REAL,
    placed TEXT NOT NULL,
    PRIMARY KEY (region, model, device)
) STRICT"""
