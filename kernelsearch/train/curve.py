"""The course of training by reward: a step's mean reward and the share of answers at each level, as data and drawn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelsearch.core.files import write_text
from kernelsearch.env.levels import LEVELS
from kernelsearch.report.html.charts import draw_svg

LEVEL = "level/"
COLOURS = ("#7f1d1d", "#b91c1c", "#ea580c", "#f59e0b", "#fbbf24", "#9ca3af", "#93c5fd", "#16a34a")


def read_steps(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The steps of a trainer's log that have rewards: step, mean reward, share by level."""
    return [
        {"step": row["step"], "reward": row["reward"], "levels": {k: row.get(f"{LEVEL}{k}", 0.0) for k in LEVELS}}
        for row in history
        if "reward" in row
    ]


def write_curve(out: Path, steps: Sequence[Mapping[str, Any]]) -> None:
    """Writes `rewards.jsonl`, and `rewards.svg`: shares by level as areas, the mean reward as a line."""
    write_text(out / "rewards.jsonl", "".join(json.dumps(step) + "\n" for step in steps))
    shares = [
        {"step": s["step"], "level": level, "order": place, "share": s["levels"][level]}
        for s in steps
        for place, level in enumerate(LEVELS)
    ]
    means = [{"step": s["step"], "reward": s["reward"]} for s in steps]
    step = {"field": "step", "type": "quantitative", "title": "step"}
    scale = {"domain": list(LEVELS), "range": list(COLOURS)}
    areas = {
        "data": {"values": shares},
        "mark": "bar" if len(steps) < 8 else "area",
        "encoding": {
            "x": step,
            "y": {"field": "share", "type": "quantitative", "stack": "zero", "title": "share of answers"},
            "color": {"field": "level", "type": "nominal", "scale": scale, "sort": list(LEVELS)},
            "order": {"field": "order", "type": "quantitative"},
        },
    }
    line = {
        "data": {"values": means},
        "mark": {"type": "line", "color": "black"},
        "encoding": {"x": step, "y": {"field": "reward", "type": "quantitative", "title": "mean reward"}},
    }
    spec = {"width": 640, "height": 280, "layer": [areas, line], "resolve": {"scale": {"y": "independent"}}}
    drawn = draw_svg(spec, "Share of answers at each level, and the mean reward, by step")
    write_text(out / "rewards.svg", drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))
