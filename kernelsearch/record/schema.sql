-- The tables of a database. Each has a `name` where a person needs one: Datasette shows it in place of the key.
-- Columns that hold JSON say so. Times are UTC, ISO 8601.

CREATE TABLE task (
    digest TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    form TEXT NOT NULL,
    precision TEXT NOT NULL,
    shapes TEXT NOT NULL, -- JSON: [{key, label}], timed and judged
    space TEXT NOT NULL   -- JSON: {name: [values]}
) STRICT;

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
    finished TEXT, -- NULL while running, and after a kill
    extended INTEGER NOT NULL DEFAULT 0 -- trials when the budget was last changed: on resume their proposals stand
) STRICT;

CREATE TABLE kernel (
    digest TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    source TEXT NOT NULL, -- as first seen; a digest does not cover SPACE, CONFIG and comments
    parent TEXT REFERENCES kernel(digest), -- as first seen; structure has it per run
    edit TEXT,
    rationale TEXT NOT NULL,
    created TEXT NOT NULL
) STRICT;

CREATE INDEX kernel_parent ON kernel(parent);

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
) STRICT;

CREATE TABLE candidate (
    digest TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    task TEXT NOT NULL REFERENCES task(digest),
    kernel TEXT NOT NULL REFERENCES kernel(digest),
    config TEXT NOT NULL, -- JSON: {name: value}, sorted
    UNIQUE (task, kernel, config)
) STRICT;

CREATE TABLE trial (
    run INTEGER NOT NULL REFERENCES run(id),
    number INTEGER NOT NULL,
    candidate TEXT NOT NULL REFERENCES candidate(digest),
    kernel TEXT NOT NULL REFERENCES kernel(digest),
    kind TEXT NOT NULL, -- seed, rewrite, retune: what the strategy proposed
    proposal TEXT NOT NULL, -- JSON: {parents, edit, config, sampler, drained}
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
    work TEXT NOT NULL DEFAULT '', -- the machine code that ran
    measured_by TEXT NOT NULL DEFAULT '', -- digest of the candidate whose evaluation was reused
    PRIMARY KEY (run, number),
    CHECK ((verdict = 'accept') = (times IS NOT NULL))
) STRICT;

CREATE INDEX trial_kernel ON trial(kernel);

CREATE INDEX trial_candidate ON trial(candidate);

CREATE INDEX trial_work ON trial(work) WHERE work <> '';

-- the leaderboard is ranked from this alone: a trial's row is wide, and only the winners' are read
CREATE INDEX trial_ranked ON trial(run, kernel, device, evidence, score, time_us, number)
    WHERE score IS NOT NULL AND abandoned = 0;

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
) STRICT;

CREATE TABLE hint (
    run INTEGER NOT NULL,
    number INTEGER NOT NULL,
    position INTEGER NOT NULL,
    bottleneck TEXT NOT NULL,
    evidence TEXT NOT NULL, -- JSON: at most four numbers
    suggestion TEXT NOT NULL,
    name TEXT NOT NULL DEFAULT '', -- the rule's
    why TEXT NOT NULL DEFAULT '',  -- its numbers in a sentence
    lost REAL NOT NULL DEFAULT 0,  -- the share of the time that it costs
    assuming TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (run, number, position),
    FOREIGN KEY (run, number) REFERENCES trial(run, number)
) STRICT;

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
) STRICT;

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
) STRICT;

CREATE TABLE ceiling ( -- what a device can do at best, measured once
    device TEXT NOT NULL,
    name TEXT NOT NULL, -- with its unit at the end
    value REAL NOT NULL,
    versions TEXT NOT NULL, -- JSON: {package: version}
    measured TEXT NOT NULL,
    PRIMARY KEY (device, name)
) STRICT;

CREATE TABLE prompt ( -- each text once; keys are never stored
    digest TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    system TEXT NOT NULL,
    page TEXT NOT NULL,
    created TEXT NOT NULL
) STRICT;

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
    follows TEXT NOT NULL, -- digest of the kernel whose answer it replies to, or empty
    tokens_in INTEGER NOT NULL,
    tokens_cached INTEGER NOT NULL,
    tokens_out INTEGER NOT NULL,
    seconds REAL NOT NULL,
    usd REAL NOT NULL,
    failure TEXT NOT NULL, -- why there is no answer, or empty
    kind TEXT NOT NULL,    -- of the failure
    made TEXT NOT NULL,
    landed INTEGER NOT NULL DEFAULT 0,  -- the ask at which its answers were taken in
    waited REAL NOT NULL DEFAULT 0,     -- how long the search stood still for it
    ask TEXT NOT NULL DEFAULT '',       -- the kind of ask
    left_out TEXT NOT NULL DEFAULT ''   -- what its page had no room for
) STRICT;

CREATE INDEX model_call_run ON model_call(run, number);

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
) STRICT;

CREATE INDEX answer_kernel ON answer(kernel) WHERE kernel <> '';

-- a kernel's best trial per task, device and evidence
CREATE VIEW leaderboard AS
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
WHERE best.place = 1;

-- a kernel of a run, and what it gained
CREATE VIEW lineage AS
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
LEFT JOIN best AS above ON above.run = s.run AND above.kernel = s.parent;
