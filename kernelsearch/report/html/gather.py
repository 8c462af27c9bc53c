"""What the page shows, read from a database as plain dicts and lists that a template and a script can use."""

from __future__ import annotations

import json
from typing import Any

from kernelsearch.record import lineage
from kernelsearch.record.rows import geometric_mean
from kernelsearch.record.store import Store
from kernelsearch.report import by_shape, leaderboard
from kernelsearch.report.lineage import diff

Facts = dict[str, Any]

MAX_DIFF_CHARACTERS = 1_200_000
"""Of all diffs of a page, so that 10,000 trials stay below 3 MB; the best kernels' diffs come first."""


def page(store: Store, task: str | None, device: str | None, limit: int | None) -> Facts:
    """Everything of the page. task is a name or digest; limit counts leaderboard rows per task, device, evidence."""
    sections = [_section(store, found) for found in _places(store, task, device)]
    _within(sections, MAX_DIFF_CHARACTERS)
    totals = store.query(
        "SELECT count(*) AS trials, count(DISTINCT kernel) AS kernels, max(finished) AS newest FROM trial"
    )
    return {"rows": leaderboard.rows(store, task, device, limit), "sections": sections, **totals[0]}


def _places(store: Store, task: str | None, device: str | None) -> list[Facts]:
    """A place is a task on a device (or on the machine model that it was estimated for)."""
    return store.query(
        """SELECT task.digest AS task_digest, task.name AS task, task.precision, task.shapes, run.target AS device,
                  count(DISTINCT run.id) AS runs, count(*) AS trials, count(DISTINCT t.kernel) AS kernels,
                  sum(t.verdict = 'accept') AS accepted, sum(t.seconds) AS seconds
           FROM trial AS t JOIN run ON run.id = t.run JOIN task ON task.digest = run.task
           WHERE (:task IS NULL OR :task IN (task.name, task.digest)) AND (:device IS NULL OR run.target = :device)
           GROUP BY task.digest, run.target ORDER BY task.name, run.target""",
        {"task": task, "device": device},
    )


def _section(store: Store, place: Facts) -> Facts:
    where = [place["task_digest"], place["device"]]
    runs = store.query(
        """SELECT run.id, run.name, run.strategy, run.proposer, run.seed, min(t.score) AS score, max(t.number) AS last,
                  min(t.evidence) AS evidence
           FROM run JOIN trial AS t ON t.run = run.id AND NOT coalesce(t.abandoned, 0)
           WHERE run.task = ? AND run.target = ? GROUP BY run.id ORDER BY score IS NULL, score, run.id""",
        where,
    )
    best = runs[0]
    sizes = [s for s in json.loads(place["shapes"]) if s["key"].startswith("timed:")]
    return {
        **place,
        "id": f"{place['task_digest'][:8]}-{_slug(place['device'])}",
        "shapes": [s["label"] for s in sizes],
        "sizes": sizes,
        "evidence": best["evidence"],
        "runs": runs,
        "curves": [
            {"run": r["id"], "name": f"{r['strategy']}, seed {r['seed']}", "steps": _steps(store, r)} for r in runs
        ],
        "baselines": _baselines(store, where),
        "ceilings": store.ceilings(place["device"]),
        "confirmed": _confirmed(store, place),
        "by_shape": by_shape.line(
            leaderboard.gains_by_shape(store, place["task_digest"], place["device"]).get(
                (place["task"], place["device"])
            )
        ),
        "verdicts": store.query(
            """SELECT verdict, count(*) AS trials FROM trial JOIN run ON run.id = trial.run
               WHERE run.task = ? AND run.target = ? GROUP BY verdict ORDER BY trials DESC""",
            where,
        ),
        "edits": _earned(store, where, "edit"),
        "proposers": _earned(store, where, "proposer"),
        "tree": _tree(store, best["id"]),
    }


def _slug(text: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in text.lower())


def _steps(store: Store, run: Facts) -> list[Facts]:
    """The best-so-far curve of a run: one point where it rises, and its end. speedup is over the seed."""
    steps, best = [], None
    for row in store.query(
        "SELECT number, score, kernel, edit FROM trial WHERE run = ? AND score IS NOT NULL AND NOT abandoned ORDER BY number",
        [run["id"]],
    ):
        if best is None or row["score"] < best["score"]:
            best = row
            steps.append(
                {
                    "trial": row["number"],
                    "speedup": 1 / row["score"],
                    "kernel": row["kernel"][:8],
                    "edit": row["edit"] or "seed",
                }
            )
    if best is not None and run["last"] > steps[-1]["trial"]:
        steps.append({**steps[-1], "trial": run["last"]})
    return steps


def _baselines(store: Store, where: list[str]) -> list[Facts]:
    """Each baseline's speed-up over the seed, the geometric mean over the shapes where both have a confirmed time."""
    times: dict[str, dict[str, float]] = {}
    failures: dict[str, str] = {}
    for row in store.query(
        "SELECT name, shape, time_us, failure, max(measured) FROM baseline WHERE task = ? AND device = ? GROUP BY name, shape",
        where,
    ):
        if row["time_us"] is None:
            failures[row["name"]] = row["failure"]
        else:
            times.setdefault(row["name"], {})[row["shape"]] = row["time_us"]
    seed = times.pop("seed", {})
    found = []
    for name, by_shape in times.items():
        ratio = geometric_mean([seed[s] / t for s, t in by_shape.items() if s in seed])
        if ratio:
            found.append({"name": name, "speedup": ratio})
    return [*sorted(found, key=lambda b: -b["speedup"]), *({"name": n, "failure": f} for n, f in failures.items())]


def _confirmed(store: Store, place: Facts) -> Facts | None:
    """The best finding of the confirmed protocol over all shapes."""
    found = [
        f
        for f in store.confirmations(place["task_digest"], place["device"])
        if f["status"] == "confirmed" and not f.get("champion_at")
    ]
    return found[0] if found else None


def _earned(store: Store, where: list[str], by: str) -> list[Facts]:
    """What each edit or proposer earned: kernels tried, accepted, faster than their parents by more than 1 %."""
    return store.query(
        f"""SELECT l.{by} AS name, count(*) AS tried, sum(l.accepted > 0) AS accepted, sum(coalesce(l.gain, 0) > 1.01) AS improved,
                   max(l.gain) AS best
            FROM lineage AS l JOIN run ON run.id = l.run
            WHERE run.task = ? AND run.target = ? AND l.edit IS NOT NULL
            GROUP BY l.{by} ORDER BY improved DESC, best DESC, tried DESC""",
        where,
    )


def _tree(store: Store, run: int) -> Facts:
    """A run's kernels, parents first; each with what changed, its hints, and why it was refused if it was."""
    steps = lineage.tree(store, run)
    why = {
        r["kernel"]: f"{r['verdict']} ({r['stage']}): {r['reason']}"
        for r in store.query(
            "SELECT kernel, verdict, stage, reason, min(number) FROM trial WHERE run = ? AND verdict <> 'accept' GROUP BY kernel",
            [run],
        )
    }
    configs = {
        r["kernel"]: {"config": json.loads(r["config"]), "time_us": r["time_us"], "trial": r["number"]}
        for r in store.query(
            """SELECT t.kernel, c.config, t.time_us, t.number, min(t.score) FROM trial AS t
               JOIN candidate AS c ON c.digest = t.candidate WHERE t.run = ? AND t.score IS NOT NULL GROUP BY t.kernel""",
            [run],
        )
    }
    hints: dict[str, list[Facts]] = {}
    for row in store.query(
        """SELECT t.kernel, h.bottleneck, h.evidence, h.suggestion, h.number FROM hint AS h
           JOIN trial AS t ON t.run = h.run AND t.number = h.number WHERE h.run = ? ORDER BY h.number, h.position""",
        [run],
    ):
        row["evidence"] = json.loads(row["evidence"])
        kept = hints.setdefault(row.pop("kernel"), [])
        if not kept or kept[0]["number"] == row["number"]:
            kept.append(row)
    nodes = []
    for step in steps.values():
        parent = steps.get(step.parent or "")
        nodes.append(
            {
                "kernel": step.kernel,
                "parent": step.parent if parent else None,
                "edit": step.edit,
                "rationale": step.rationale,
                "proposer": step.proposer,
                "trials": step.trials,
                "accepted": step.accepted,
                "first": step.number,
                "speedup": 1 / step.score if step.score else None,
                "gain": step.gain,
                "why": None if step.accepted else why.get(step.kernel),
                "hints": hints.get(step.kernel, []),
                "diff": diff(parent, step) if parent else "",
                **configs.get(step.kernel, {}),
            }
        )
    return {"run": run, "nodes": nodes}


def _within(sections: list[Facts], budget: int) -> None:
    """Leaves out the diffs of the slowest kernels where all of them would be too much; says so in the node."""
    nodes = [n for s in sections for n in s["tree"]["nodes"]]
    for node in sorted(nodes, key=lambda n: -(n["speedup"] or 0)):
        budget -= len(node["diff"])
        if budget < 0:
            node["diff"] = None
