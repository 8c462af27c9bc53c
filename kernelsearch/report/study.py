"""A study's findings from the database alone: gains at checkpoints, areas, wins and ties, what each edit contributed.

A gain is the seed's time over the best time so far (geometric mean over the timed shapes). Gains of several seeds are
averaged by the geometric mean; intervals are percentile bootstraps over the seeds (Efron 1979), 95 %. With so few
seeds they are rough, and they say nothing of other machines or tasks.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelsearch.core.errors import StudyError
from kernelsearch.record.rows import geometric_mean
from kernelsearch.record.store import Store
from kernelsearch.report import spending
from kernelsearch.report.study_text import as_markdown

__all__ = ["as_markdown", "facts"]

RESAMPLES = 5000
LEVEL = 0.95
IMPROVED = 1.01
"""A rewrite improved on its parent if its best time is at least 1 % better."""


@dataclass(frozen=True)
class Done:
    """One run of a study: its curve has (trials, best score then) for each improvement."""

    run: int
    task: str
    task_digest: str
    arm: str
    seed: int
    target: str
    trials: int
    finished: bool
    curve: tuple[tuple[int, float], ...]
    evidence: str
    reused: int
    rejected: int
    settings: Mapping[str, Any]
    versions: str
    started: str

    def gain(self, n: int) -> float | None:
        """The gain over the seed after n trials; None for a run that was cut before."""
        if n > self.trials and not self.finished:
            return None
        best = [score for at, score in self.curve if at <= n]
        return 1 / best[-1] if best else None

    def area(self, n: int) -> float | None:
        """The mean over trials 1 to n of the gain's logarithm, as a gain."""
        if self.gain(n) is None:
            return None
        ends = [at for at, _ in self.curve[1:] if at <= n] + [n + 1]
        steps = zip(self.curve, ends, strict=False)
        return math.exp(sum(-math.log(score) * (end - at) for (at, score), end in steps) / n)


def facts(store: Store, name: str | None, arms: Sequence[str] = (), checkpoints: Sequence[int] = ()) -> dict[str, Any]:
    """All of a study as plain data; name None is the newest study. Raises StudyError when there is none."""
    runs = _runs(store, name)
    names = list(dict.fromkeys(r.arm for r in runs))
    order = [a for a in arms if a in names] or sorted(names, key=lambda a: (a != "evolve", names.index(a)))
    budget = max(r.trials for r in runs)
    points = [n for n in (checkpoints or (25, 50, 100, 200)) if n <= budget] or [budget]
    tasks = {}
    for task in dict.fromkeys(r.task for r in runs):
        mine = [r for r in runs if r.task == task]
        fastest = _fastest(store, mine[0])
        tasks[task] = {
            "fastest_baseline": fastest,
            "arms": {arm: _arm([r for r in mine if r.arm == arm], points, fastest) for arm in order},
            "against": {
                arm: _against([r for r in mine if r.arm == order[0]], [r for r in mine if r.arm == arm], points[-1])
                for arm in order[1:]
            },
        }
    return {
        "study": runs[0].settings["study"],
        "arms": order,
        "subject": order[0],
        "checkpoints": points,
        "targets": sorted({r.target for r in runs}),
        "evidence": sorted({r.evidence for r in runs}),
        "versions": sorted({r.versions for r in runs}),
        "first_run": min(r.started for r in runs),
        "level": LEVEL,
        "tasks": tasks,
        "won": _won(tasks, order),
        "spent": {arm: _spent(store, [r for r in runs if r.arm == arm]) for arm in order},
        "edits": {arm: _edits(store, [r for r in runs if r.arm == arm]) for arm in order},
        "runs": [
            {
                "task": r.task,
                "arm": r.arm,
                "seed": r.seed,
                "trials": r.trials,
                "finished": r.finished,
                "reused": r.reused,
                "rejected": r.rejected,
                "curve": [[at, round(score, 5)] for at, score in r.curve],
            }
            for r in runs
        ],
    }


def _runs(store: Store, name: str | None) -> list[Done]:
    rows = store.query(
        """SELECT run.*, task.name AS task_name FROM run JOIN task ON task.digest = run.task
           WHERE json_extract(run.settings, '$.study') IS NOT NULL ORDER BY run.id"""
    )
    told = [(r, json.loads(r["settings"])) for r in rows]
    wanted = name or (told[-1][1]["study"] if told else None)
    newest = {}
    for row, settings in told:
        if settings["study"] == wanted:
            newest[row["task_name"], settings["arm"], row["seed"]] = (row, settings)  # of a changed arm the newest
    found = [_done(store, row, settings) for row, settings in newest.values()]
    found = [r for r in found if r.curve]
    if not found:
        raise StudyError(f"{store.path} has no run of {'study ' + wanted if wanted else 'a study'}")
    return found


def _done(store: Store, row: Mapping[str, Any], settings: Mapping[str, Any]) -> Done:
    trials = store.query(
        """SELECT number, score, abandoned, evidence, verdict, measured_by <> '' AS reused FROM trial
           WHERE run = ? ORDER BY number""",
        [row["id"]],
    )
    curve: list[tuple[int, float]] = []
    for trial in trials:
        score = trial["score"]
        if score is not None and not trial["abandoned"] and (not curve or score < curve[-1][1]):
            curve.append((trial["number"] + 1, score))
    return Done(
        row["id"],
        row["task_name"],
        row["task"],
        settings["arm"],
        row["seed"],
        row["target"],
        len(trials),
        row["finished"] is not None,
        tuple(curve),
        next((t["evidence"] for t in trials if t["evidence"]), ""),
        sum(t["reused"] for t in trials),
        sum(t["verdict"] != "accept" for t in trials),
        settings,
        row["versions"],
        row["started"],
    )


def _fastest(store: Store, run: Done) -> dict[str, Any] | None:
    """The fastest baseline of each shape against the seed: gain is what the seed would have to gain to equal it."""
    found = store.query(
        "SELECT shape, name, min(time_us) AS time_us FROM baseline WHERE task = ? AND device = ? AND time_us > 0 GROUP BY shape",
        [run.task_digest, run.target],
    )
    times = store.query("SELECT times FROM trial WHERE run = ? AND number = 0", [run.run])
    seed = {t["shape"]: t["time_us"] for t in json.loads(times[0]["times"] or "[]")}
    fastest = {r["shape"]: r for r in found if r["shape"] in seed}
    if not seed or set(fastest) != set(seed):
        return None
    ratios = [seed[shape] / fastest[shape]["time_us"] for shape in seed]
    names = dict.fromkeys(fastest[shape]["name"] for shape in seed)
    us = geometric_mean([fastest[shape]["time_us"] for shape in seed])
    return {
        "names": list(names),
        "gain": geometric_mean(ratios),
        "time_us": us,
        "seed_us": geometric_mean(list(seed.values())),
    }


def _arm(runs: Sequence[Done], points: Sequence[int], fastest: Mapping[str, Any] | None) -> dict[str, Any]:
    at = {}
    for n in points:
        gains = [g for r in runs if (g := r.gain(n)) is not None]
        at[str(n)] = {**_mean(gains), "over_fastest": _over(_mean(gains), fastest)}
    areas = [a for r in runs if (a := r.area(points[-1])) is not None]
    return {
        "seeds": [r.seed for r in runs],
        "at": at,
        "area": _mean(areas),
        "trials": sum(r.trials for r in runs),
        "reused": sum(r.reused for r in runs),
        "rejected": sum(r.rejected for r in runs),
    }


def _over(mean: Mapping[str, Any], fastest: Mapping[str, Any] | None) -> float | None:
    return mean["mean"] / fastest["gain"] if fastest and mean["mean"] else None


def _mean(values: Sequence[float]) -> dict[str, Any]:
    """The geometric mean with its interval; no interval from one value."""
    low, high = interval([math.log(v) for v in values]) if len(values) > 1 else (None, None)
    return {
        "n": len(values),
        "mean": geometric_mean(list(values)),
        "values": [round(v, 5) for v in values],
        "low": None if low is None else math.exp(low),
        "high": None if high is None else math.exp(high),
    }


def interval(values: Sequence[float], others: Sequence[float] = (0.0,)) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of mean(values) - mean(others), each resampled by itself."""
    import numpy as np

    rng = np.random.default_rng(0)
    means = [rng.choice(np.asarray(v, float), (RESAMPLES, len(v))).mean(axis=1) for v in (values, others)]
    low, high = np.quantile(means[0] - means[1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _against(subject: Sequence[Done], other: Sequence[Done], n: int) -> dict[str, Any] | None:
    """The subject's gain over another arm's at the end, and whether their intervals cross."""
    mine, its = ([g for r in runs if (g := r.gain(n)) is not None] for runs in (subject, other))
    if len(mine) < 2 or len(its) < 2:
        return None
    low, high = interval([math.log(v) for v in mine], [math.log(v) for v in its])
    a, b = _mean(mine), _mean(its)
    said = "win" if a["low"] > b["high"] else "loss" if a["high"] < b["low"] else "tie"
    return {"ratio": a["mean"] / b["mean"], "low": math.exp(low), "high": math.exp(high), "said": said}


def _won(tasks: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """Per other arm how many tasks were won, tied and lost, and the worst ratio."""
    found = {}
    for arm in order[1:]:
        all_of = [t["against"][arm] for t in tasks.values() if t["against"][arm]]
        counts = {word: sum(a["said"] == word for a in all_of) for word in ("win", "tie", "loss")}
        found[arm] = {**counts, "tasks": len(all_of), "worst": min((a["ratio"] for a in all_of), default=None)}
    return found


def _spent(store: Store, runs: Sequence[Done]) -> list[dict[str, Any]]:
    """What the models of an arm cost and brought, one entry for each of the bandit's arms that was asked; sums over the runs."""
    found: dict[str, dict[str, Any]] = {}
    for run in runs:
        for one in spending.as_dict(store, run.run):
            told = found.setdefault(one["arm"], {"by": one["arm"], "runs": 0})
            told["runs"] += 1
            for name, value in one.items():
                if name != "arm":
                    told[name] = told.get(name, 0) + value
    return list(found.values())


def _edits(store: Store, runs: Sequence[Done]) -> list[dict[str, Any]]:
    """Per edit: structures tried, accepted, improved on their parent, and in how many runs it is in the best kernel.

    The edits of a rewrite that composes several each count.
    """
    table: dict[str, dict[str, Any]] = defaultdict(
        lambda: {"tried": 0, "accepted": 0, "improved": 0, "in_best": 0, "gains": []}
    )
    for run in runs:
        rows = store.query("SELECT kernel, parent, edit, accepted, score, gain FROM lineage WHERE run = ?", [run.run])
        known = {r["kernel"]: r for r in rows}
        for row in rows:
            for edit in _parts(row["edit"]):
                told = table[edit]
                told["tried"] += 1
                told["accepted"] += bool(row["accepted"])
                told["improved"] += (row["gain"] or 0) >= IMPROVED
                if row["gain"]:
                    told["gains"].append(row["gain"])
        best = min((r for r in rows if r["score"] is not None), key=lambda r: r["score"], default=None)
        on_path = set()
        while best is not None:
            on_path.update(_parts(best["edit"]))
            best = known.get(best["parent"])
        for edit in on_path:
            table[edit]["in_best"] += 1
    found = []
    for edit, told in table.items():
        gains = sorted(told.pop("gains"))
        middle = gains[len(gains) // 2] if gains else None
        found.append({"edit": edit, **told, "median_gain": middle, "best_gain": gains[-1] if gains else None})
    return sorted(found, key=lambda e: (-e["in_best"], -e["improved"], e["edit"]))


def _parts(edit: str | None) -> list[str]:
    return edit.split("+") if edit else []
