"""The rows that an export chooses from: tasks, candidates with their kernels, and the trials that timed them."""

from __future__ import annotations

import json
import math

from kernelsearch.core.types import config_key
from kernelsearch.record.rows import Row, times_of
from kernelsearch.record.store import Store


def task_names(store: Store) -> list[str]:
    return [row["name"] for row in store.query("SELECT name FROM task")]


def task_rows(store: Store, task: str) -> list[Row]:
    """The tasks of this name or digest; the one with the newest run comes first."""
    return store.query(
        """SELECT task.* FROM task LEFT JOIN run ON run.task = task.digest WHERE ? IN (task.name, task.digest)
           GROUP BY task.digest ORDER BY max(run.id) DESC""",
        [task],
    )


def candidate_row(store: Store, candidate: str) -> Row:
    """A candidate's kernel (its digest), config (JSON) and kernel source."""
    return store.query(
        """SELECT c.kernel, c.config, kernel.source FROM candidate AS c JOIN kernel ON kernel.digest = c.kernel
           WHERE c.digest = ?""",
        [candidate],
    )[0]


def seed_candidate(store: Store, task: str, device: str) -> str | None:
    """The candidate that is the task's own kernel with its own config, in the newest run on a device; None before any.

    The config of an autotuned one was found on that device.
    """
    rows = store.query(
        """SELECT t.candidate FROM trial AS t JOIN run ON run.id = t.run
           WHERE run.task = :task AND t.kind = 'seed' ORDER BY t.device = :device DESC, t.run DESC, t.number LIMIT 1""",
        {"task": task, "device": device},
    )
    return rows[0]["candidate"] if rows else None


def timed_trials(store: Store, task: str, device: str | None) -> list[Row]:
    """The trials that were timed on each device, the first ones first; of those of the seed the newest run's alone."""
    return store.query(
        """SELECT * FROM (
               SELECT t.run, t.number, t.candidate, t.device, t.evidence, t.times, t.score, t.depth, t.kind, t.finished,
                   run.versions, row_number() OVER (
                   PARTITION BY t.device, t.evidence, t.kind ORDER BY t.run DESC, t.number) AS of_kind
               FROM trial AS t JOIN run ON run.id = t.run
               WHERE run.task = :task AND t.score IS NOT NULL AND NOT t.abandoned
                   AND (:device IS NULL OR t.device = :device))
           WHERE kind <> 'seed' OR of_kind = 1 ORDER BY run, number""",
        {"task": task, "device": device},
    )


def seed_times(store: Store, run: int) -> dict[str, float]:
    """The seed's times in a run in microseconds, by shape; empty where it was not timed."""
    sql = "SELECT times FROM trial WHERE run = ? AND kind = 'seed' AND times IS NOT NULL ORDER BY number LIMIT 1"
    rows = store.query(sql, [run])
    return times_of(rows[0]) if rows else {}


def accepted_trial(store: Store, candidate: str) -> Row | None:
    """The candidate's first accepted trial, with its run's name; one at full depth goes before all others."""
    rows = store.query(
        """SELECT t.run, t.number, t.verdict, t.depth, t.error_ratio, t.referee, t.layers, t.detail, run.name
           FROM trial AS t JOIN run ON run.id = t.run WHERE t.candidate = ? AND t.verdict = 'accept'
           ORDER BY t.depth <> 'full', t.run, t.number LIMIT 1""",
        [candidate],
    )
    return rows[0] if rows else None


def config_times(store: Store, task: str, kernel: str, device: str) -> dict[str, dict[str, float]]:
    """The least time of each config of a kernel in microseconds, by shape and config (JSON)."""
    rows = store.query(
        """SELECT c.config, t.times
           FROM trial AS t JOIN run ON run.id = t.run JOIN candidate AS c ON c.digest = t.candidate
           WHERE t.kernel = ? AND run.task = ? AND t.device = ? AND t.score IS NOT NULL AND NOT t.abandoned""",
        [kernel, task, device],
    )
    least: dict[str, dict[str, float]] = {}
    for row in rows:
        for shape, time_us in times_of(row).items():
            by_config = least.setdefault(shape, {})
            by_config[row["config"]] = min(by_config.get(row["config"], math.inf), time_us)
    return least


def drawn_times(store: Store, task: str, device: str) -> dict[str, dict[tuple[str, str], float]]:
    """Times in microseconds at shapes that were drawn between a task's own, by shape, then by kernel and config (JSON).

    Of several runs the newest time counts.
    """
    rows = store.query(
        """SELECT m.shape, c.kernel, c.config, m.time_us FROM measurement AS m
           JOIN candidate AS c ON c.digest = m.candidate
           WHERE c.task = ? AND m.device = ? AND m.shape LIKE 'drawn:%' ORDER BY m.measured""",
        [task, device],
    )
    times: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows:
        times.setdefault(row["shape"], {})[row["kernel"], config_key(json.loads(row["config"]))] = row["time_us"]
    return times
