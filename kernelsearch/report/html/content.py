"""Content of the HTML page, read from a database as plain dicts and lists for the template and the script."""

from __future__ import annotations

import json
from typing import Any

from kernelsearch.core.formats import explain_hint
from kernelsearch.record import family_tree, queries
from kernelsearch.record.confirmation_rows import CONFIRMED
from kernelsearch.record.family_tree import LineageStep
from kernelsearch.record.rows import columns, geometric_mean
from kernelsearch.record.store import Store
from kernelsearch.report import leaderboard
from kernelsearch.report.findings import format_gain_by_shape, is_champion
from kernelsearch.report.lineage import diff_structures, load_gains

Facts = dict[str, Any]

MAX_DIFF_CHARACTERS = 1_200_000
"""Of all diffs of a page, so that 10,000 trials stay below 3 MB; the best kernels' diffs come first."""


def page(store: Store, task: str | None, device: str | None, limit: int | None) -> Facts:
    """Everything on the page. task is a name or digest; limit counts leaderboard rows per task, device, evidence."""
    sections = [_section(store, place) for place in queries.places(store, task, device)]
    _limit_diffs(sections, MAX_DIFF_CHARACTERS)
    rows = leaderboard.build_rows(store, task, device, limit)
    return {"rows": rows, "sections": sections, **queries.totals(store)}


def _section(store: Store, place: Facts) -> Facts:
    where = (place["task_digest"], place["device"])
    runs = queries.runs_by_score(store, *where)
    best = runs[0]
    sizes = [s for s in json.loads(place["shapes"]) if s["key"].startswith("timed:")]
    gains = leaderboard.compute_gains_by_shape(store, *where)
    device_slug = "".join(c if c.isalnum() else "-" for c in place["device"].lower())
    whole = (f for f in store.load_confirmations(*where) if f["status"] == CONFIRMED and not is_champion(f))
    return {
        **place,
        "id": f"{place['task_digest'][:8]}-{device_slug}",
        "shapes": [s["label"] for s in sizes],
        "sizes": sizes,
        "evidence": best["evidence"],
        "seed_configs": queries.seed_tunings(store).get(where, {}).get("configs", 0),
        "runs": runs,
        "curves": [_curve(store, run) for run in runs],
        "baselines": _baselines(store, *where),
        "ceilings": store.load_ceilings(place["device"]),
        "confirmed": next(whole, None),
        "by_shape": format_gain_by_shape(gains.get((place["task"], place["device"]))),
        "verdicts": queries.verdict_counts(store, *where),
        "edits": queries.rewrites_by(store, *where, "edit"),
        "proposers": queries.rewrites_by(store, *where, "proposer"),
        "tree": _tree(store, best["id"]),
    }


def _curve(store: Store, run: Facts) -> Facts:
    """The best-so-far curve of a run: one point where it rises, and its end. speedup is over the seed."""
    steps = [
        {"trial": r["number"], "speedup": 1 / r["score"], "kernel": r["kernel"][:8], "edit": r["edit"] or "seed"}
        for r in queries.improvements(store, run["id"])
    ]
    if steps and run["last"] > steps[-1]["trial"]:
        steps.append({**steps[-1], "trial": run["last"]})
    return {"run": run["id"], "name": f"{run['strategy']}, seed {run['seed']}", "steps": steps}


def _baselines(store: Store, task: str, device: str) -> list[Facts]:
    """Each baseline's speed-up over the seed: the geometric mean over shapes where both have a confirmed time."""
    times: dict[str, dict[str, float]] = {}
    failures: dict[str, str] = {}
    for row in queries.newest_baselines(store, task, device):
        if row["time_us"] is None:
            failures[row["name"]] = row["failure"]
        else:
            times.setdefault(row["name"], {})[row["shape"]] = row["time_us"]
    seed = times.pop("seed", {})
    timed = []
    for name, us in times.items():
        ratio = geometric_mean([seed[shape] / time for shape, time in us.items() if shape in seed])
        if ratio:
            timed.append({"name": name, "speedup": ratio})
    return [*sorted(timed, key=lambda b: -b["speedup"]), *({"name": n, "failure": f} for n, f in failures.items())]


def _tree(store: Store, run: int) -> Facts:
    """A run's kernels, parents first; each with its change, its hints, and the reason if it was refused."""
    steps = family_tree.load_tree(store, run)
    rejections = queries.first_rejections(store, run)
    best = {row["kernel"]: row for row in queries.best_trials(store, run, abandoned=True)}
    hints = queries.first_hints(store, run)
    ranked = [row["kernel"] for row in queries.best_trials(store, run, abandoned=False)]
    gains = load_gains(store, run, ranked[0]) if ranked else {}

    def node(step: LineageStep) -> Facts:
        parent = steps.get(step.parent or "")
        trial, rejection = best.get(step.kernel), rejections.get(step.kernel)
        why = f"{rejection['verdict']} ({rejection['stage']}): {rejection['reason']}" if rejection else None
        return {
            **columns(step, "kernel edit rationale proposer trials accepted gain"),
            "gain_at_config": gains.get(step.kernel) if parent else None,
            "parent": step.parent if parent else None,
            "first": step.number,
            "speedup": 1 / step.score if step.score else None,
            "why": None if step.accepted else why,
            "hints": [explain_hint(hint) for hint in hints.get(step.kernel, [])],
            "diff": diff_structures(parent, step) if parent else "",
            **({"config": trial["config"], "time_us": trial["time_us"], "trial": trial["number"]} if trial else {}),
        }

    return {"run": run, "nodes": [node(step) for step in steps.values()]}


def _limit_diffs(sections: list[Facts], budget: int) -> None:
    """Sets the diffs of the slowest kernels to None where all diffs together would exceed the budget."""
    nodes = [n for s in sections for n in s["tree"]["nodes"]]
    for node in sorted(nodes, key=lambda n: -(n["speedup"] or 0)):
        budget -= len(node["diff"])
        if budget < 0:
            node["diff"] = None
