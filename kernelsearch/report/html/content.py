"""Content of the HTML page, read from a database as plain dicts and lists for the template."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from kernelsearch.core.types import is_gain
from kernelsearch.propose.models.plan import format_idea
from kernelsearch.record import queries
from kernelsearch.record.confirmation_rows import CONFIRMED
from kernelsearch.record.rows import Row, geometric_mean
from kernelsearch.record.store import Store
from kernelsearch.report import leaderboard
from kernelsearch.report.findings import describe_gain, format_gain_by_shape, is_champion
from kernelsearch.report.html.kernel_parts import load_kernels, sum_up_earnings
from kernelsearch.report.leaderboard_text import GROUP, fold_ties
from kernelsearch.report.lineage import load_plan
from kernelsearch.report.tables import format_table

Facts = dict[str, Any]

MOST_PARTS = 1000
"""The best kernels of each task have a part with their source; so many in all, that 10,000 trials stay below 3 MB."""


def page(store: Store, task: str | None, device: str | None, limit: int | None) -> Facts:
    """Everything on the page. task is a name or digest; limit counts folded rows per task, device, evidence."""
    sections = [_section(store, place) for place in queries.places(store, task, device)]
    rows = [row for s in sections for row in s["rows"]]
    known = {_key(one) for row in rows for one in (row, *row["ties"])}
    others = leaderboard.build_rows(store, task, device)  # of what was measured, and never searched
    others = fold_ties([row for row in others if _key(row) not in known])
    found = [*others, *(row for s in sections for row in s["rows"])]
    for section in sections:
        section["rows"] = cut_rows(section["rows"], limit)
    rows = [*(row for s in sections for row in s["rows"]), *cut_rows(others, limit)]
    _choose_parts(sections, MOST_PARTS)
    return {
        "rows": rows,
        "left_out": _count_kernels(found) - _count_kernels(rows),
        "sections": sections,
        **queries.totals(store),
    }


def _count_kernels(rows: list[Row]) -> int:
    return sum(1 + len(row["ties"]) for row in rows)


def _key(row: Row) -> tuple:
    return tuple(row[name] for name in ("task", "device", "evidence", "kernel", "run", "number"))


def cut_rows(rows: list[Row], limit: int | None) -> list[Row]:
    """The first rows of each task, device and evidence, as many as the limit; without one, all.

    With a limit what a search found slower than the seed stands in the tree only.
    """
    count: Counter[tuple] = Counter()
    kept = []
    for row in rows:
        place = tuple(row[name] for name in GROUP)
        if limit is not None and count[place] and row["evidence"] != CONFIRMED and is_gain(1 / row["speedup"]):
            continue
        count[place] += 1
        kept += [row] if limit is None or count[place] <= limit else []
    return kept


def _section(store: Store, place: Facts) -> Facts:
    where = (place["task_digest"], place["device"])
    runs = queries.runs_by_score(store, *where)
    sizes = [s for s in json.loads(place["shapes"]) if s["key"].startswith("timed:")]
    gains = leaderboard.compute_gains_by_shape(store, *where)
    device_slug = "".join(c if c.isalnum() else "-" for c in place["device"].lower())
    findings = [f for f in store.load_confirmations(*where) if not is_champion(f)]
    confirmed = next((f for f in findings if f["status"] == CONFIRMED), None)
    slug = f"{place['task_digest'][:8]}-{device_slug}"
    ids = {run["id"] for run in runs}
    board = leaderboard.build_rows(store, place["task_digest"], None)
    rows = fold_ties(
        [r for r in board if r["device"] == place["device"] or (r["evidence"] != CONFIRMED and r["run"] in ids)]
    )
    trees, kernels = load_kernels(store, place, runs, findings)
    for row in rows:
        for one in (row, *row["ties"]):
            one["part"] = f"{slug}-{one['kernel'][:8]}"
    made = [line["of"] for tree in trees for line in tree["lines"]]
    points = queries.trial_points(store, *where)
    gained = bool(rows) and is_gain(rows[0]["speedup"])
    own, tables = points[0]["kernel"], [row for row in rows if row["table"]]
    found = [one for row in rows for one in (row, *row["ties"]) if one["evidence"] != CONFIRMED]
    searched = next((row for row in found if gained or row["kernel"] == own), None)
    return {
        **place,
        "id": slug,
        "shapes": [s["label"] for s in sizes],
        "sizes": sizes,
        "evidence": runs[0]["evidence"],
        "seed_configs": queries.seed_tunings(store).get(where, {}).get("configs", 0),
        "runs": runs,
        "rows": rows,
        "points": points,
        "baselines": _baselines(store, *where),
        "confirmed": confirmed,
        "gain": describe_gain(confirmed) if confirmed and confirmed["vs_fastest"] else None,
        "searched": searched,
        "gained": gained,
        "alone": kernels[searched["kernel"]]["alone"] if gained and searched else "",
        "accepted_kernels": sum(bool(kernel["speedup"]) for kernel in kernels.values()),
        "best": rows[0]["kernel"] if gained else own if rows else None,
        "by_shape": format_gain_by_shape(gains.get((place["task"], place["device"]))),
        "tables": [format_table(row["table"], row["evidence"], row["seed_configs"]) for row in tables],
        "verdicts": sorted(Counter(trial["verdict"] for trial in points).items(), key=lambda v: (-v[1], v[0])),
        "edits": sum_up_earnings(made, "edit"),
        "proposers": sum_up_earnings(made, "proposer"),
        "trees": trees,
        "plan": [format_idea(idea) for idea in load_plan(store, runs[0]["id"])],
        "kernels": kernels,
    }


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
    timed: list[Facts] = []
    for name, us in times.items():
        ratio = geometric_mean([seed[shape] / time for shape, time in us.items() if shape in seed])
        if ratio:
            timed.append({"name": name, "speedup": ratio})
    return [*sorted(timed, key=lambda b: -b["speedup"]), *({"name": n, "failure": f} for n, f in failures.items())]


def _choose_parts(sections: list[Facts], most: int) -> None:
    """Marks the kernels that have a part of the page (`part`), and those that are in it without a script (`static`).

    The latter are the heads of the leaderboard's rows; the best of each section comes first.
    """
    ranked = [
        (place, section, kernel)
        for section in sections
        for place, kernel in enumerate(sorted(section["kernels"].values(), key=lambda k: -(k["speedup"] or 0)))
    ]
    for number, (_, section, kernel) in enumerate(sorted(ranked, key=lambda r: r[0])):
        heads = {section["best"], *(row["kernel"] for row in section["rows"])}
        kernel["static"] = kernel["kernel"] in heads
        kernel["part"] = f"{section['id']}-{kernel['kernel'][:8]}" if number < most or kernel["static"] else None
