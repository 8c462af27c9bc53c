"""Rows of plans and lessons: ideas of a task, what was tried of them, and the kernels that gained on any task."""

from __future__ import annotations

from typing import Any

from kernelsearch.record.rows import Row
from kernelsearch.record.store import IMPORTED, Store

_STUDY = "json_extract(run.settings, '$.study') IS NOT NULL"
_BEST = """SELECT t.run, t.kernel, min(CASE WHEN NOT t.abandoned THEN t.score END) AS score, count(*) AS trials,
                  min(t.evidence) AS evidence, min(CASE WHEN t.verdict <> 'accept' THEN t.reason END) AS reason
           FROM trial AS t JOIN run ON run.id = t.run
           WHERE {where} GROUP BY t.run, t.kernel"""


def add_idea(store: Store, task: str, device: str, origin: str, idea: Row) -> None:
    """Adds an idea for a task (its digest); of one that is there only the doubt changes.

    origin is when the run that it comes from began.
    """
    with store.transaction():
        store.add("idea", {**idea, "task": task, "device": device, "origin": origin}, "OR IGNORE")
        sql = "UPDATE idea SET doubt = ? WHERE task = ? AND device = ? AND id = ?"
        store.database.execute(sql, [idea["doubt"], task, device, idea["id"]])


def load_ideas(store: Store, task: str, device: str, without: str | None = None) -> list[Row]:
    """The ideas for a task (its digest) on a device, the first ones first, without those of a run that began then."""
    sql = "SELECT * FROM idea WHERE task = ? AND device = ? AND origin IS NOT ? ORDER BY rowid"
    return store.query(sql, [task, device, without])


def load_tries(store: Store, task: str, device: str, without: str | None = None) -> list[Row]:
    """The kernels that models and people wrote for a task on a device, with the idea that was asked for, if one was.

    score and parent_score are the best of the run; searched says whether a search ended with it. Runs of studies, which
    may not know of each other, and imported ones do not count.
    """
    where = f"""run.task = :task AND run.target = :device AND run.started IS NOT :without
                AND run.name NOT LIKE '%{IMPORTED}' AND NOT {_STUDY}"""
    return store.query(
        f"""WITH best AS ({_BEST.format(where=where)})
            SELECT s.run, s.kernel, s.rationale, s.space, asked.idea, own.score, own.trials, own.evidence, own.reason,
                   above.score AS parent_score, run.finished IS NOT NULL AND run.strategy <> 'try' AS searched
            FROM structure AS s JOIN run ON run.id = s.run
            JOIN best AS own ON own.run = s.run AND own.kernel = s.kernel
            LEFT JOIN best AS above ON above.run = s.run AND above.kernel = s.parent
            LEFT JOIN (SELECT c.run, a.kernel, min(c.idea) AS idea FROM answer AS a
                       JOIN model_call AS c ON c.id = a.call WHERE a.kernel <> '' GROUP BY c.run, a.kernel) AS asked
                ON asked.run = s.run AND asked.kernel = s.kernel
            WHERE s.parent IS NOT NULL AND (asked.idea IS NOT NULL OR s.edit LIKE 'kernel:%')
            ORDER BY s.run, s.number""",
        {"task": task, "device": device, "without": without},
    )


def add_lesson(store: Store, lesson: Row) -> None:
    """Adds what somebody learnt from a kernel, in place of what was said of it before."""
    with store.transaction():
        store.add("lesson", lesson, "OR REPLACE")


def load_gained_steps(store: Store, least: float, most: int) -> list[Row]:
    """The changes that gained most over their parents on any task, each kernel once: at least `least` times as fast.

    Each has its task's shapes (JSON), and the first bottleneck that was found in its parent. text is what somebody
    learnt from it, else its rationale.
    """
    columns: dict[str, Any] = {"least": least, "most": most}
    return store.query(
        f"""WITH best AS ({_BEST.format(where=f"NOT {_STUDY}")})
            SELECT task.name AS task, task.digest, task.shapes, run.target AS device, own.evidence, s.kernel,
                   coalesce(lesson.name, s.rationale) AS text, max(above.score / own.score) AS gain,
                   run.name LIKE '%{IMPORTED}' AS imported, lesson.name IS NOT NULL AS written,
                   (SELECT h.bottleneck FROM hint AS h JOIN trial AS t ON t.run = h.run AND t.number = h.number
                    WHERE t.run = s.run AND t.kernel = s.parent ORDER BY t.score, h.position LIMIT 1) AS bottleneck
            FROM structure AS s JOIN run ON run.id = s.run JOIN task ON task.digest = run.task
            JOIN best AS own ON own.run = s.run AND own.kernel = s.kernel
            JOIN best AS above ON above.run = s.run AND above.kernel = s.parent
            LEFT JOIN lesson ON lesson.kernel = s.kernel AND lesson.task = task.digest AND lesson.device = run.target
            WHERE above.score / own.score >= :least OR lesson.name IS NOT NULL
            GROUP BY task.digest, run.target, s.kernel
            ORDER BY lesson.name IS NULL, gain DESC LIMIT :most""",
        columns,
    )
