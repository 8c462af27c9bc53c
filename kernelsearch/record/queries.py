"""Queries of the reports: each function returns rows, or rows by their key. Tasks are digests unless stated."""

from __future__ import annotations

import json

from kernelsearch.core.types import Hint
from kernelsearch.record.rows import SEED_SETTING, Row, hint_of, times_of
from kernelsearch.record.store import IMPORTED, OF_TASK, Store

# ---------------------------------------------------------------- leaderboard

MOST_NAMED = 4
"""Shapes of a run that are named one by one."""
_PROPOSER = f"run.proposer || CASE WHEN run.name LIKE '%{IMPORTED}' THEN '{IMPORTED}' ELSE '' END AS proposer"


def ranked_kernels(store: Store, task: str | None, device: str | None, limit: int | None) -> list[Row]:
    """Rows of the view `leaderboard` with their proposers; task is a name or digest, limit the last rank.

    shapes are the labels of those that `--shape` named, "" for all.
    """
    rows = store.query(
        f"""SELECT leaderboard.*, {_PROPOSER} FROM leaderboard JOIN run ON run.id = leaderboard.run
           WHERE (:task IS NULL OR :task IN (leaderboard.task, task_digest)) AND (:device IS NULL OR device = :device)
             AND (:limit IS NULL OR rank <= :limit)
           ORDER BY leaderboard.task, task_digest, device,
                    CASE evidence WHEN 'confirmed' THEN 0 WHEN 'measured' THEN 1 ELSE 2 END,
                    leaderboard.shapes <> '[]', leaderboard.shapes, score, leaderboard.run, number""",
        {"task": task, "device": device, "limit": limit},
    )
    for row in rows:
        labels = {shape["key"]: shape["label"] for shape in json.loads(row.pop("all_shapes"))}
        named = [labels.get(key, key) for key in json.loads(row["shapes"])]
        row["shapes"] = "; ".join(named) if len(named) <= MOST_NAMED else f"{len(named)} of its shapes"
    return [{**row, "config": json.loads(row["config"])} for row in rows]


def confirmed_candidates(store: Store) -> dict[str, Row]:
    """Candidates with a confirmation, by digest: task, edit, parent, proposer, and the first trial (run, number)."""
    rows = store.query(
        f"""SELECT candidate.digest, candidate.task AS task_digest, task.name AS task, kernel.edit, kernel.parent,
                  first.run, first.number, {_PROPOSER}
           FROM candidate JOIN task ON task.digest = candidate.task JOIN kernel ON kernel.digest = candidate.kernel
           LEFT JOIN (SELECT candidate, run, number, min(finished) FROM trial GROUP BY candidate) AS first
               ON first.candidate = candidate.digest
           LEFT JOIN run ON run.id = first.run
           WHERE candidate.digest IN (SELECT candidate FROM confirmation)"""
    )
    return {row["digest"]: row for row in rows}


def confirmed_times(store: Store, candidate: str, device: str) -> dict[str, float]:
    """The newest confirmed time of a candidate at each shape, in microseconds."""
    rows = store.query(
        """SELECT shape, time_us FROM measurement WHERE candidate = ? AND device = ? AND evidence = 'confirmed'
           ORDER BY measured, rowid""",
        [candidate, device],
    )
    return {row["shape"]: row["time_us"] for row in rows}


def trial_times(store: Store, run: int, number: int) -> dict[str, float]:
    """The times of one trial by shape, in microseconds; empty if it was rejected."""
    (row,) = store.query("SELECT times FROM trial WHERE run = ? AND number = ?", [run, number])
    return times_of(row)


def seed_tunings(store: Store) -> dict[tuple[str, str], Row]:
    """How the newest run of a task (digest) on a device tuned an autotuned seed over its own list."""
    newest = {(run.task, run.facts.target): run.facts.settings.get(SEED_SETTING) for run in store.load_runs()[::-1]}
    return {place: dict(tuning) for place, tuning in newest.items() if tuning}


def devices(store: Store) -> set[str]:
    """All devices of trials and confirmations, and all targets of runs."""
    sql = "SELECT device FROM trial WHERE device IS NOT NULL UNION SELECT device FROM confirmation"
    return {row["device"] for row in store.query(f"{sql} UNION SELECT target FROM run")}


# ---------------------------------------------------------------- a task on a device, for the HTML page


def totals(store: Store) -> Row:
    """The counts of trials, of each task's kernels, and of ends of runs, and the times of the newest rows."""
    return store.query(
        """SELECT count(*) AS trials, count(DISTINCT run.task || run.target || t.kernel) AS kernels,
                  max(t.finished) AS newest,
                  (SELECT count(finished) FROM run) AS ended, (SELECT max(measured) FROM confirmation) AS confirmed
           FROM trial AS t JOIN run ON run.id = t.run"""
    )[0]


def places(store: Store, task: str | None, device: str | None) -> list[Row]:
    """Every task on every device (or machine model) that was searched, with counts; task is a name or digest."""
    return store.query(
        f"""SELECT task.digest AS task_digest, task.name AS task, task.path, task.precision, task.shapes,
                   run.target AS device,
                   count(DISTINCT run.id) AS runs, count(*) AS trials, count(DISTINCT t.kernel) AS kernels,
                   sum(t.verdict = 'accept') AS accepted, sum(t.seconds) AS seconds
            FROM trial AS t JOIN run ON run.id = t.run JOIN task ON task.digest = run.task
            WHERE {OF_TASK} AND (:device IS NULL OR run.target = :device)
            GROUP BY task.digest, run.target ORDER BY task.name, run.target""",
        {"task": task, "device": device},
    )


def runs_by_score(store: Store, task: str, device: str) -> list[Row]:
    """The runs of a task on a device, the best first, with their best scores and how far they are.

    state is finished, running (some process writes it), or cut.
    """
    runs = store.query(
        """SELECT run.id, run.name, run.strategy, run.proposer, run.seed, run.window, run.trials AS budget,
                  run.versions, run.finished, count(*) AS trials, min(t.evidence) AS evidence,
                  min(CASE WHEN NOT t.abandoned THEN t.score END) AS score
           FROM run JOIN trial AS t ON t.run = run.id
           WHERE run.task = ? AND run.target = ? GROUP BY run.id ORDER BY score IS NULL, score, run.id""",
        [task, device],
    )
    written = store.find_written_runs()
    for run in runs:
        run["state"] = "finished" if run["finished"] else "running" if run["id"] in written else "cut"
    return runs


def trial_points(store: Store, task: str, device: str) -> list[Row]:
    """Every trial of a task on a device, without its times and texts, by run and number."""
    return store.query(
        """SELECT t.run, t.number, t.kind, t.kernel, t.edit, t.verdict, t.score, coalesce(t.abandoned, 0) AS abandoned
           FROM trial AS t JOIN run ON run.id = t.run WHERE run.task = ? AND run.target = ? ORDER BY t.run, t.number""",
        [task, device],
    )


def newest_baselines(store: Store, task: str, device: str) -> list[Row]:
    """The newest time (or failure) of each baseline at each shape."""
    return store.query(
        """SELECT name, shape, time_us, failure, max(measured) FROM baseline WHERE task = ? AND device = ?
           GROUP BY name, shape""",
        [task, device],
    )


def fastest_baselines(store: Store, task: str, device: str) -> dict[str, Row]:
    """The name and the time of the fastest baseline at each shape."""
    rows = store.query(
        """SELECT shape, name, min(time_us) AS time_us FROM baseline WHERE task = ? AND device = ? AND time_us > 0
           GROUP BY shape""",
        [task, device],
    )
    return {row["shape"]: row for row in rows}


def task_files(store: Store) -> dict[str, tuple[str, str]]:
    """Every task's name and the path of its file when it was opened, by its digest."""
    return {row["digest"]: (row["name"], row["path"]) for row in store.query("SELECT digest, name, path FROM task")}


# ---------------------------------------------------------------- a run


def study_runs(store: Store) -> list[Row]:
    """All runs that belong to a study, oldest first, with their task's name and their settings decoded."""
    rows = store.query(
        """SELECT run.*, task.name AS task_name FROM run JOIN task ON task.digest = run.task
           WHERE json_extract(run.settings, '$.study') IS NOT NULL ORDER BY run.id"""
    )
    return [{**row, "settings": json.loads(row["settings"])} for row in rows]


def improvements(store: Store, run: int) -> list[Row]:
    """The trials of a run that were better than all before them: number, score, kernel, edit."""
    return store.query(
        """SELECT number, score, kernel, edit FROM (
               SELECT *, min(score) OVER (
                   ORDER BY number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS least
               FROM trial WHERE run = ? AND score IS NOT NULL AND NOT abandoned)
           WHERE least IS NULL OR score < least ORDER BY number""",
        [run],
    )


def trial_counts(store: Store, run: int) -> Row:
    """A run's counts of trials, of reused evaluations and of rejections, and the evidence of its first time."""
    return store.query(
        """SELECT count(*) AS trials, coalesce(sum(measured_by <> ''), 0) AS reused,
                  coalesce(sum(verdict <> 'accept'), 0) AS rejected,
                  (SELECT evidence FROM trial WHERE run = :run AND evidence <> '' ORDER BY number LIMIT 1) AS evidence
           FROM trial WHERE run = :run""",
        {"run": run},
    )[0]


def evidence_of(store: Store, run: int) -> str:
    """The word for a run's times: `estimated`, `measured`, both, or `no`."""
    rows = store.query("SELECT DISTINCT evidence FROM trial WHERE run = ? AND evidence IS NOT NULL", [run])
    return " and ".join(sorted(row["evidence"] for row in rows)) or "no"


def best_trials(store: Store, run: int, abandoned: bool) -> list[Row]:
    """The best trial of each kernel of a run, best first: its config, and its times by shape.

    Abandoned ones count only if asked for.
    """
    rows = store.query(
        """SELECT * FROM (
               SELECT t.kernel, c.config, t.time_us, t.number, t.device, t.times, t.depth, t.referee, t.evidence,
                      t.score, row_number() OVER (PARTITION BY t.kernel ORDER BY t.score, t.number) AS place
               FROM trial AS t JOIN candidate AS c ON c.digest = t.candidate
               WHERE t.run = ? AND t.score IS NOT NULL AND (? OR NOT t.abandoned))
           WHERE place = 1 ORDER BY score, number""",
        [run, abandoned],
    )
    return [{**row, "config": json.loads(row["config"]), "times": times_of(row)} for row in rows]


def first_rejections(store: Store, run: int) -> dict[str, Row]:
    """The verdict, stage and reason of the first rejected trial of each kernel of a run."""
    rows = store.query(
        """SELECT kernel, verdict, stage, reason, min(number) FROM trial WHERE run = ? AND verdict <> 'accept'
           GROUP BY kernel""",
        [run],
    )
    return {row["kernel"]: row for row in rows}


def best_hints(store: Store, run: int) -> dict[str, list[Hint]]:
    """The hints of the best trial of each kernel of a run, of those that have any; of its first one without a time."""
    hints: dict[str, list[Hint]] = {}
    for row in store.query(
        """SELECT t.kernel, h.* FROM hint AS h JOIN (
               SELECT kernel, number, row_number() OVER (
                   PARTITION BY kernel ORDER BY score IS NULL, score, number) AS place
               FROM trial WHERE run = :run AND number IN (SELECT number FROM hint WHERE run = :run)) AS t
               ON t.number = h.number AND t.place = 1
           WHERE h.run = :run ORDER BY h.position""",
        {"run": run},
    ):
        hints.setdefault(row["kernel"], []).append(hint_of(row))
    return hints
