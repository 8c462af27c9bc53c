"""Confirmations, baselines, ceilings, calls of models, and later columns of runs, trials and calls."""

from __future__ import annotations

from kernelsearch.record.migrations.m001_to_m004 import migrations
from kernelsearch.record.sqlite_library import Database


@migrations()
def m005_confirmations_baselines_ceilings(db: Database) -> None:
    """Results of the confirmed protocol: for a candidate over all shapes, for each baseline, for the device itself."""
    db.execute(
        """
        CREATE TABLE confirmation ( -- the newest per key; its times by shape are rows of measurement
            candidate TEXT NOT NULL REFERENCES candidate(digest),
            device TEXT NOT NULL,
            protocol TEXT NOT NULL,
            versions TEXT NOT NULL, -- JSON: {package: version}
            status TEXT NOT NULL,   -- confirmed, unstable, or the verdict that ended it
            faster INTEGER NOT NULL, -- than the fastest baseline, beyond 1 % and the A/A spread
            time_us REAL, -- geometric mean over the timed shapes
            vs_seed REAL, -- the seed's time over this one's
            vs_seed_low REAL,
            vs_seed_high REAL,
            vs_fastest REAL, -- the fastest baseline's time over this one's
            vs_fastest_low REAL,
            vs_fastest_high REAL,
            fastest TEXT NOT NULL, -- the fastest baselines by name, one per shape
            level REAL NOT NULL,   -- of the intervals
            aa_spread REAL,
            roofline REAL, -- share of this device's measured roofline
            detail TEXT NOT NULL, -- JSON: all of it, by shape
            measured TEXT NOT NULL,
            PRIMARY KEY (candidate, device, protocol, versions)
        ) STRICT
        """
    )
    db.execute(
        """
        CREATE TABLE baseline ( -- the newest per key
            task TEXT NOT NULL REFERENCES task(digest),
            shape TEXT NOT NULL,
            device TEXT NOT NULL,
            name TEXT NOT NULL,
            protocol TEXT NOT NULL,
            versions TEXT NOT NULL, -- JSON: {package: version}
            time_us REAL,
            spread_us REAL,
            failure TEXT, -- why there is no time
            measured TEXT NOT NULL,
            PRIMARY KEY (task, shape, device, name, protocol, versions)
        ) STRICT
        """
    )
    db.execute(
        """
        CREATE TABLE ceiling ( -- what a device can do at best, measured once
            device TEXT NOT NULL,
            name TEXT NOT NULL, -- with its unit at the end
            value REAL NOT NULL,
            versions TEXT NOT NULL, -- JSON: {package: version}
            measured TEXT NOT NULL,
            PRIMARY KEY (device, name)
        ) STRICT
        """
    )


@migrations()
def m006_what_ran_and_whose_measurement(db: Database) -> None:
    """`work` identifies the machine code that ran; `measured_by` is the candidate whose evaluation was reused."""
    db.execute("ALTER TABLE trial ADD COLUMN work TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE trial ADD COLUMN measured_by TEXT NOT NULL DEFAULT ''")  # a candidate's digest
    db.execute("CREATE INDEX trial_work ON trial(work) WHERE work <> ''")
    db.execute("CREATE INDEX trial_ranked ON trial(kernel, score) WHERE score IS NOT NULL")


@migrations()
def m007_model_calls(db: Database) -> None:
    """Prompts and answers of models, with tokens, seconds and cost. Keys are never stored."""
    db.execute(
        """
        CREATE TABLE prompt ( -- each text once
            digest TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            system TEXT NOT NULL,
            page TEXT NOT NULL,
            created TEXT NOT NULL
        ) STRICT
        """
    )
    db.execute(
        """
        CREATE TABLE model_call (
            id INTEGER PRIMARY KEY,
            name TEXT NOT NULL,
            run INTEGER NOT NULL REFERENCES run(id),
            number INTEGER NOT NULL, -- the ask; its trial is there later, or never
            arm TEXT NOT NULL,       -- model:NAME or repair:NAME, as in structure.edit
            engine TEXT NOT NULL,
            parent TEXT NOT NULL REFERENCES kernel(digest),
            prompt TEXT NOT NULL REFERENCES prompt(digest),
            grammar TEXT NOT NULL, -- its digest
            idea TEXT NOT NULL,    -- id of what was asked for
            action TEXT NOT NULL,  -- the same in a sentence
            repairs TEXT NOT NULL, -- digest of the refused kernel that was sent back, or empty
            tokens_in INTEGER NOT NULL,
            tokens_cached INTEGER NOT NULL,
            tokens_out INTEGER NOT NULL,
            seconds REAL NOT NULL,
            usd REAL NOT NULL,
            failure TEXT NOT NULL, -- why there is no answer, or empty
            kind TEXT NOT NULL,    -- of the failure
            made TEXT NOT NULL
        ) STRICT
        """
    )
    db.execute("CREATE INDEX model_call_run ON model_call(run, number)")
    db.execute(
        """
        CREATE TABLE answer (
            call INTEGER NOT NULL REFERENCES model_call(id),
            position INTEGER NOT NULL,
            digest TEXT NOT NULL, -- of its text
            text TEXT NOT NULL,
            finish TEXT NOT NULL, -- stop or length
            tokens INTEGER NOT NULL,
            stage TEXT NOT NULL,  -- what refused it (stopped, grammar, parses, names, gate, new), or kernel
            reason TEXT NOT NULL,
            kernel TEXT NOT NULL, -- digest of what it made; it may never have come into the run
            PRIMARY KEY (call, position)
        ) STRICT
        """
    )
    db.execute("CREATE INDEX answer_kernel ON answer(kernel) WHERE kernel <> ''")


@migrations()
def m008_leaderboard_by_index(db: Database) -> None:
    """The same `leaderboard`, ranked from an index alone: a trial's row is wide, and only the winners' are read."""
    db.execute("DROP INDEX trial_ranked")
    db.execute(
        """
        CREATE INDEX trial_ranked ON trial(run, kernel, device, evidence, score, time_us, number)
            WHERE score IS NOT NULL AND abandoned = 0
        """
    )
    db.create_view(
        "leaderboard",
        """
        WITH best AS (
            SELECT run.task AS task_digest, t.device, t.evidence, t.kernel, t.score, t.time_us, t.run, t.number,
                   row_number() OVER (PARTITION BY run.task, t.device, t.evidence, t.kernel
                                      ORDER BY t.score, t.time_us, t.run, t.number) AS place
            FROM trial AS t JOIN run ON run.id = t.run
            WHERE t.score IS NOT NULL AND t.abandoned = 0
        )
        SELECT task.name AS task, best.device, best.evidence, rank() OVER (
                   PARTITION BY best.task_digest, best.device, best.evidence ORDER BY best.score, best.time_us) AS rank,
               best.score, 1.0 / best.score AS speedup, best.time_us, best.kernel, k.name AS name, c.config,
               s.edit, s.rationale, s.parent, best.run, best.number, best.task_digest, own.candidate,
               (SELECT count(*) FROM measurement AS m WHERE m.candidate = own.candidate
                   AND m.device = best.device AND m.evidence = 'confirmed') AS confirmed_shapes
        FROM best
        JOIN task ON task.digest = best.task_digest
        JOIN trial AS own ON own.run = best.run AND own.number = best.number
        JOIN candidate AS c ON c.digest = own.candidate
        JOIN kernel AS k ON k.digest = best.kernel
        LEFT JOIN structure AS s ON s.run = best.run AND s.kernel = best.kernel
        WHERE best.place = 1
        """,
        replace=True,
    )


@migrations()
def m009_extended_runs(db: Database) -> None:
    """The number of trials that a run had when its budget was last changed: on resume their proposals stand."""
    db.execute("ALTER TABLE run ADD COLUMN extended INTEGER NOT NULL DEFAULT 0")


@migrations()
def m010_calls_asked_ahead(db: Database) -> None:
    """When answers were taken in, and how long the search waited. Earlier calls were waited for at their own ask."""
    db.execute("ALTER TABLE model_call ADD COLUMN landed INTEGER NOT NULL DEFAULT 0")
    db.execute("ALTER TABLE model_call ADD COLUMN waited REAL NOT NULL DEFAULT 0")
    db.execute("UPDATE model_call SET landed = number, waited = seconds")


@migrations()
def m011_conversations(db: Database) -> None:
    """The answer that a call replies to, refused or not; the kind of ask; what its page had no room for."""
    db.execute("ALTER TABLE model_call RENAME COLUMN repairs TO follows")
    db.execute("ALTER TABLE model_call ADD COLUMN ask TEXT NOT NULL DEFAULT ''")
    db.execute("ALTER TABLE model_call ADD COLUMN left_out TEXT NOT NULL DEFAULT ''")
    db.execute("UPDATE model_call SET ask = 'repair' WHERE follows <> ''")
