"""What was collected, in words: the list of regions in the order of what could be gained, and the step's shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelsearch.core.formats import format_time
from kernelsearch.core.types import Evidence

LISTED = 20


def total_by_region(uses: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each region: uses, share of the step, and the share that its floor would save; largest saving first."""
    rows: dict[str, dict[str, Any]] = {}
    for use in uses:
        row = rows.setdefault(use["region"], dict(region=use["region"], uses={}, share=0.0, saving=0.0, time_us=0.0))
        row["uses"][use["direction"]] = row["uses"].get(use["direction"], 0) + use["uses"]
        share = use["share"] or 0.0
        row["share"] += share
        row["saving"] += share * max(0.0, 1 - use["least_us"] / use["time_us"]) if use["time_us"] else 0.0
        row["time_us"] = max(row["time_us"], use["time_us"])
    return sorted(rows.values(), key=lambda row: -row["saving"])


def align(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table's lines; its last column is as long as it is."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header) - 1)]
    return ["  ".join([*(c.ljust(w) for c, w in zip(row, widths)), row[-1]]).rstrip() for row in (header, *rows)]


def write_report(found: Mapping[str, Any]) -> str:
    model, step = found["model"], found["model"]["step_us"] or 1e-3
    rows = total_by_region(found["uses"])
    word = model["evidence"]
    saving = sum(row["saving"] for row in rows)
    cells = [
        (
            row["region"],
            " ".join(f"{count} {direction}" for direction, count in row["uses"].items()),
            f"{row['share']:.1%}",
            f"{row['time_us']:.3g}",
            f"{row['saving']:.1%}",
            found["regions"][row["region"]]["name"],
        )
        for row in rows[:LISTED]
    ]
    graphs = f"{found['graphs']} graphs, called {found['calls']} times"
    graphs += f", with {sum(u['uses'] for u in found['uses'])} regions, {len(rows)} distinct"
    lines = [f"{model['name']}: {graphs}; a step takes {format_time(step)} on {model['device']} ({word})", ""]
    lines += align(("region", "uses", "share", "us", "to gain", "operations"), cells)
    if len(rows) > LISTED:
        lines.append(f"and {len(rows) - LISTED} more")
    kinds = (("products", model["product_us"]), ("attention", model["attention_us"]), ("regions", model["region_us"]))
    lines += ["", "of the step: " + ", ".join(f"{name} {us / step:.1%}" for name, us in kinds) + f" ({word})"]
    gain = saving / (1 - saving) if saving < 1 else 0.0
    lines.append(
        f"if every region ran at the memory's speed, the step would be {gain:.1%} faster ({Evidence.ESTIMATED.value})"
    )
    return "\n".join(lines)
