"""The results of a study, from the database alone: gains at checkpoints, wins, ties, contributions of edits.

A gain is the seed's time over the best time so far (geometric mean over the timed shapes). Gains of several seeds are
averaged by the geometric mean; intervals are percentile bootstraps over the seeds (Efron 1979), 95 %. With so few
seeds they are rough, and they do not generalise to other machines or tasks.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelsearch.core.errors import StudyError
from kernelsearch.record import family_tree, queries
from kernelsearch.record.rows import Row, columns, geometric_mean
from kernelsearch.record.store import Store
from kernelsearch.report import model_costs
from kernelsearch.report.study_text import as_markdown

__all__ = ["as_markdown", "collect_facts"]

RESAMPLES = 5000
LEVEL = 0.95
IMPROVED = 1.01
"""A rewrite improved on its parent if its best time is at least 1 % better."""


@dataclass(frozen=True)
class StudyRun:
    """One run of a study; curve has (number of trials, best score then) for each improvement."""

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
    study: str
    versions: str
    started: str

    def gain(self, n: int) -> float | None:
        """The gain over the seed after n trials; None for a run that stopped earlier."""
        if n > self.trials and not self.finished:
            return None
        best = [score for at, score in self.curve if at <= n]
        return 1 / best[-1] if best else None


def collect_facts(
    store: Store, name: str | None, arms: Sequence[str] = (), checkpoints: Sequence[int] = ()
) -> dict[str, Any]:
    """All results of a study as plain data; name None means the newest study. Raises StudyError if there is none."""
    runs = _runs(store, name)
    names = list(dict.fromkeys(r.arm for r in runs))
    order = [a for a in arms if a in names] or sorted(names, key=lambda a: (a != "evolve", names.index(a)))
    budget = max(r.trials for r in runs)
    points = [n for n in (checkpoints or (25, 50, 100, 200)) if n <= budget] or [budget]
    runs_by_arm = {arm: [r for r in runs if r.arm == arm] for arm in order}
    tasks = {}
    for task in dict.fromkeys(r.task for r in runs):
        of_arm = {arm: [r for r in runs if r.task == task and r.arm == arm] for arm in order}
        fastest = _fastest(store, next(r for r in runs if r.task == task))
        tasks[task] = {
            "fastest_baseline": fastest,
            "seed_configs": max(store.load_run(r.run).seed_configs for r in runs if r.task == task),
            "arms": {arm: _arm(of_arm[arm], points, fastest) for arm in order},
            "against": {arm: _against(of_arm[order[0]], of_arm[arm], points[-1]) for arm in order[1:]},
        }
    return {
        "study": runs[0].study,
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
        "spent": {arm: _spent(store, arm_runs) for arm, arm_runs in runs_by_arm.items()},
        "edits": {arm: _edits(store, arm_runs) for arm, arm_runs in runs_by_arm.items()},
        "runs": [
            columns(run, "task arm seed trials finished reused rejected")
            | {"curve": [[at, round(score, 5)] for at, score in run.curve]}
            for run in runs
        ],
    }


def _runs(store: Store, name: str | None) -> list[StudyRun]:
    """The runs of a study, of those with the same task, arm and seed the newest, without runs that accepted nothing."""
    rows = queries.study_runs(store)
    study = name or (rows[-1]["settings"]["study"] if rows else None)
    newest = {}
    for row in rows:
        if row["settings"]["study"] == study:
            newest[row["task_name"], row["settings"]["arm"], row["seed"]] = row  # of a changed arm the newest
    runs = [run for run in (_done(store, row) for row in newest.values()) if run.curve]
    if not runs:
        raise StudyError(f"{store.path} has no run of {'study ' + study if study else 'a study'}")
    return runs


def _done(store: Store, row: Row) -> StudyRun:
    counts = queries.trial_counts(store, row["id"])
    return StudyRun(
        run=row["id"],
        task=row["task_name"],
        task_digest=row["task"],
        arm=row["settings"]["arm"],
        study=row["settings"]["study"],
        finished=row["finished"] is not None,
        curve=tuple((trial["number"] + 1, trial["score"]) for trial in queries.improvements(store, row["id"])),
        **{name: row[name] for name in ("seed", "target", "versions", "started")},
        **(counts | {"evidence": counts["evidence"] or ""}),
    )


def _fastest(store: Store, run: StudyRun) -> dict[str, Any] | None:
    """The fastest baseline of each shape against the seed: gain is the gain at which the seed would equal it."""
    seed = queries.trial_times(store, run.run, 0)
    baselines = queries.fastest_baselines(store, run.task_digest, run.target)
    if not seed or not seed.keys() <= baselines.keys():
        return None
    fastest = [baselines[shape] for shape in seed]
    return {
        "names": list(dict.fromkeys(b["name"] for b in fastest)),
        "gain": geometric_mean([us / b["time_us"] for us, b in zip(seed.values(), fastest, strict=True)]),
        "time_us": geometric_mean([b["time_us"] for b in fastest]),
        "seed_us": geometric_mean(list(seed.values())),
    }


def _arm(runs: Sequence[StudyRun], points: Sequence[int], fastest: Mapping[str, Any] | None) -> dict[str, Any]:
    at = {}
    for n in points:
        mean = _mean(_gains(runs, n))
        over_fastest = mean["mean"] / fastest["gain"] if fastest and mean["mean"] else None
        at[str(n)] = {**mean, "over_fastest": over_fastest}
    return {
        "seeds": [r.seed for r in runs],
        "at": at,
        **{name: sum(getattr(r, name) for r in runs) for name in ("trials", "reused", "rejected")},
    }


def _gains(runs: Sequence[StudyRun], n: int) -> list[float]:
    """The gains after n trials of those runs that came so far."""
    return [gain for run in runs if (gain := run.gain(n)) is not None]


def _mean(values: Sequence[float]) -> dict[str, Any]:
    """The geometric mean with its interval; no interval from one value."""
    low, high = bootstrap_interval([math.log(v) for v in values]) if len(values) > 1 else (None, None)
    return {
        "n": len(values),
        "mean": geometric_mean(list(values)),
        "values": [round(v, 5) for v in values],
        "low": None if low is None else math.exp(low),
        "high": None if high is None else math.exp(high),
    }


def bootstrap_interval(values: Sequence[float], others: Sequence[float] = (0.0,)) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of mean(values) - mean(others), each resampled by itself."""
    import numpy as np

    rng = np.random.default_rng(0)
    means = [rng.choice(np.asarray(v, float), (RESAMPLES, len(v))).mean(axis=1) for v in (values, others)]
    low, high = np.quantile(means[0] - means[1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _against(subject: Sequence[StudyRun], other: Sequence[StudyRun], n: int) -> dict[str, Any] | None:
    """The subject's gain over another arm's after n trials, and a win or a loss if their intervals do not cross."""
    gains, rival_gains = _gains(subject, n), _gains(other, n)
    if len(gains) < 2 or len(rival_gains) < 2:
        return None
    low, high = bootstrap_interval([math.log(v) for v in gains], [math.log(v) for v in rival_gains])
    a, b = _mean(gains), _mean(rival_gains)
    word = "win" if a["low"] > b["high"] else "loss" if a["high"] < b["low"] else "tie"
    return {"ratio": a["mean"] / b["mean"], "low": math.exp(low), "high": math.exp(high), "said": word}


def _won(tasks: Mapping[str, Any], order: Sequence[str]) -> dict[str, Any]:
    """For each other arm the number of tasks won, tied and lost, and the worst ratio."""
    won = {}
    for arm in order[1:]:
        results = [task["against"][arm] for task in tasks.values() if task["against"][arm]]
        counts = {word: sum(r["said"] == word for r in results) for word in ("win", "tie", "loss")}
        won[arm] = {**counts, "tasks": len(results), "worst": min((r["ratio"] for r in results), default=None)}
    return won


def _spent(store: Store, runs: Sequence[StudyRun]) -> list[dict[str, Any]]:
    """The costs and results of an arm's models: one entry for each of the bandit's arms, summed over the runs."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for run in runs:
        for one in model_costs.as_dict(store, run.run):
            sums[one.pop("arm")].update(one, runs=1)
    return [{"by": arm, **total} for arm, total in sums.items()]


def _edits(store: Store, runs: Sequence[StudyRun]) -> list[dict[str, Any]]:
    """Per edit: structures tried, accepted, improved on their parent, and in how many runs it is in the best kernel.

    In a rewrite that composes several edits, each of them counts.
    """
    table: dict[str, dict[str, Any]] = defaultdict(lambda: dict(tried=0, accepted=0, improved=0, in_best=0))
    gains: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        steps = family_tree.load_tree(store, run.run)
        for step in steps.values():
            for edit in _parts(step.edit):
                table[edit]["tried"] += 1
                table[edit]["accepted"] += bool(step.accepted)
                table[edit]["improved"] += (step.gain or 0) >= IMPROVED
                gains[edit] += [step.gain] if step.gain else []
        best = min((s for s in steps.values() if s.score is not None), key=lambda s: s.score or 0.0, default=None)
        path = family_tree.ancestors(steps, best.kernel) if best else []
        for edit in {edit for step in path for edit in _parts(step.edit)}:
            table[edit]["in_best"] += 1
    rows = []
    for edit, counts in table.items():
        median = statistics.median_high(gains[edit]) if gains[edit] else None
        rows.append({"edit": edit, **counts, "median_gain": median, "best_gain": max(gains[edit], default=None)})
    return sorted(rows, key=lambda e: (-e["in_best"], -e["improved"], e["edit"]))


def _parts(edit: str | None) -> list[str]:
    return edit.split("+") if edit else []
