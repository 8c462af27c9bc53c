"""Tasks, runs, kernels, structures, candidates, trials, measurements, hints, and the views over them."""

from __future__ import annotations

from kernelsearch.record.sqlite_library import Database, Migrations

migrations = Migrations("kernelsearch")
"""All migrations in order; each `@migrations()` below and in the next files adds one."""


@migrations()
def m001_tasks_runs_kernels(db: Database) -> None:
    db.execute(
        """
        CREATE TABLE task (
            digest TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            path TEXT NOT NULL,
            form TEXT NOT NULL,
            precision TEXT NOT NULL,
            shapes TEXT NOT NULL, -- JSON: [{key, label}], timed and judged
            space TEXT NOT NULL   -- JSON: {name: [values]}
        ) STRICT
        """
    )
    db.execute(
        """
        CREATE TABLE run (
            id INTEGER PRIMARY KEY,
            name TEXT NOT NULL,
            task TEXT NOT NULL REFERENCES task(digest),
            strategy TEXT NOT NULL,
            proposer TEXT NOT NULL,
            seed INTEGER NOT NULL,
            window INTEGER NOT NULL,
            trials INTEGER NOT NULL, -- the budget; it may be raised on resume
            target TEXT NOT NULL,
            versions TEXT NOT NULL, -- JSON: {package: version}
            settings TEXT NOT NULL, -- JSON: whatever else must be equal for a resume
            started TEXT NOT NULL,
            finished TEXT -- NULL while running, and after a kill
        ) STRICT
        """
    )
    db.execute(
        """
        CREATE TABLE kernel (
            digest TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            source TEXT NOT NULL, -- as first seen; a digest does not cover SPACE, CONFIG and comments
            parent TEXT REFERENCES kernel(digest), -- as first seen; structure has it per run
            edit TEXT,
            rationale TEXT NOT NULL,
            created TEXT NOT NULL
        ) STRICT
        """
    )
    db.execute("CREATE INDEX kernel_parent ON kernel(parent)")
    db.table("kernel").enable_fts(["source", "rationale"], create_triggers=True)


@migrations()
def m002_structures_candidates_trials(db: Database) -> None:
    db.execute(
        """
        CREATE TABLE structure (
            run INTEGER NOT NULL REFERENCES run(id),
            kernel TEXT NOT NULL REFERENCES kernel(digest),
            number INTEGER NOT NULL, -- the trial that brought it into the run
            parent TEXT REFERENCES kernel(digest),
            edit TEXT,
            rationale TEXT NOT NULL,
            space TEXT NOT NULL,  -- JSON: SPACE of the file as proposed
            config TEXT NOT NULL, -- JSON: CONFIG of the file as proposed
            PRIMARY KEY (run, kernel)
        ) STRICT
        """
    )
    db.execute(
        """
        CREATE TABLE candidate (
            digest TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            task TEXT NOT NULL REFERENCES task(digest),
            kernel TEXT NOT NULL REFERENCES kernel(digest),
            config TEXT NOT NULL, -- JSON: {name: value}, sorted
            UNIQUE (task, kernel, config)
        ) STRICT
        """
    )
    db.execute(
        """
        CREATE TABLE trial (
            run INTEGER NOT NULL REFERENCES run(id),
            number INTEGER NOT NULL,
            candidate TEXT NOT NULL REFERENCES candidate(digest),
            kernel TEXT NOT NULL REFERENCES kernel(digest),
            kind TEXT NOT NULL, -- seed, rewrite, retune: what the strategy proposed
            proposal TEXT NOT NULL, -- JSON: {parents, edit, config, sampler}
            edit TEXT,
            rationale TEXT NOT NULL,
            verdict TEXT NOT NULL,
            stage TEXT NOT NULL,
            reason TEXT NOT NULL,
            depth TEXT NOT NULL,
            error_ratio REAL,
            referee TEXT NOT NULL, -- gpu or interpreter
            layers TEXT NOT NULL,  -- JSON: isolation layers that were on
            detail TEXT NOT NULL,  -- JSON
            score REAL,   -- time over the seed's, geometric mean over the timed shapes
            time_us REAL, -- geometric mean over the timed shapes
            evidence TEXT,
            device TEXT,
            protocol TEXT,
            abandoned INTEGER,
            times TEXT, -- JSON: what this trial itself measured, by shape
            seconds REAL NOT NULL, -- what evaluating it cost
            finished TEXT NOT NULL,
            PRIMARY KEY (run, number),
            CHECK ((verdict = 'accept') = (times IS NOT NULL))
        ) STRICT
        """
    )
    db.execute("CREATE INDEX trial_kernel ON trial(kernel)")
    db.execute("CREATE INDEX trial_candidate ON trial(candidate)")


@migrations()
def m003_measurements_hints(db: Database) -> None:
    db.execute(
        """
        CREATE TABLE measurement ( -- the newest per key; a trial's own times are in its row
            candidate TEXT NOT NULL REFERENCES candidate(digest),
            shape TEXT NOT NULL,
            specialisation TEXT NOT NULL,
            device TEXT NOT NULL,
            protocol TEXT NOT NULL,
            versions TEXT NOT NULL, -- JSON: {package: version}
            evidence TEXT NOT NULL,
            time_us REAL NOT NULL,
            spread_us REAL,
            samples INTEGER NOT NULL,
            detail TEXT NOT NULL, -- JSON
            measured TEXT NOT NULL,
            PRIMARY KEY (candidate, shape, specialisation, device, protocol, versions)
        ) STRICT
        """
    )
    db.execute(
        """
        CREATE TABLE hint (
            run INTEGER NOT NULL,
            number INTEGER NOT NULL,
            position INTEGER NOT NULL,
            bottleneck TEXT NOT NULL,
            evidence TEXT NOT NULL, -- JSON: at most four numbers
            suggestion TEXT NOT NULL,
            PRIMARY KEY (run, number, position),
            FOREIGN KEY (run, number) REFERENCES trial(run, number)
        ) STRICT
        """
    )


@migrations()
def m004_views(db: Database) -> None:
    """`leaderboard`: a kernel's best trial per task, device and evidence. `lineage`: a kernel and what it gained."""
    db.create_view(
        "leaderboard",
        """
        SELECT task_name AS task, device, evidence, rank() OVER (
                   PARTITION BY task_digest, device, evidence ORDER BY score, time_us) AS rank,
               score, 1.0 / score AS speedup, time_us, kernel, name, config, edit, rationale, parent,
               run, number, task_digest, candidate,
               (SELECT count(*) FROM measurement AS m WHERE m.candidate = best.candidate
                   AND m.device = best.device AND m.evidence = 'confirmed') AS confirmed_shapes
        FROM (
            SELECT task.name AS task_name, task.digest AS task_digest, t.device, t.evidence, t.score, t.time_us,
                   t.kernel, k.name AS name, c.config, s.edit, s.rationale, s.parent, t.run, t.number, t.candidate,
                   row_number() OVER (PARTITION BY run.task, t.device, t.evidence, t.kernel
                                      ORDER BY t.score, t.time_us, t.run, t.number) AS place
            FROM trial AS t
            JOIN run ON run.id = t.run
            JOIN task ON task.digest = run.task
            JOIN candidate AS c ON c.digest = t.candidate
            JOIN kernel AS k ON k.digest = t.kernel
            LEFT JOIN structure AS s ON s.run = t.run AND s.kernel = t.kernel
            WHERE t.score IS NOT NULL AND NOT t.abandoned
        ) AS best
        WHERE place = 1
        """,
    )
    db.create_view(
        "lineage",
        """
        WITH best AS (
            SELECT run, kernel, min(score) AS score, count(*) AS trials, sum(verdict = 'accept') AS accepted
            FROM trial GROUP BY run, kernel
        )
        SELECT s.run, s.kernel, k.name, s.number, s.parent, s.edit, s.rationale, run.proposer,
               own.trials, own.accepted, own.score, above.score AS parent_score, above.score / own.score AS gain
        FROM structure AS s
        JOIN run ON run.id = s.run
        JOIN kernel AS k ON k.digest = s.kernel
        LEFT JOIN best AS own ON own.run = s.run AND own.kernel = s.kernel
        LEFT JOIN best AS above ON above.run = s.run AND above.kernel = s.parent
        """,
    )
