"""What the best confirmed candidate of each shape gains together, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelsearch.core import words
from kernelsearch.measure.timing.baselines import SEED


def line(gained: Mapping[str, Any] | None) -> str:
    """`by shape: 1.03x [1.02, 1.04] the fastest baseline (...); who runs where`, of `measure.by_shape.gain`; else empty.

    Empty too where one candidate runs at all shapes: its own headline says it.
    """
    if gained is None or len({(s["name"], str(s["config"])) for s in gained["shapes"]}) == 1:
        return ""
    runs: dict[str, list[str]] = {}
    for s in gained["shapes"]:
        runs.setdefault("the seed" if s["name"] == SEED else s["name"], []).append(s["label"])
    return f"by shape: {against(gained)}; " + ", ".join(
        f"{name} at {' and '.join(labels)}" for name, labels in runs.items()
    )


def against(gained: Mapping[str, Any]) -> str:
    """`1.03x [1.02, 1.04] the fastest baseline (compile, seed)`, and what it is over the seed where that is another."""
    rivals = ", ".join(dict.fromkeys(s["fastest"] for s in gained["shapes"]))
    said = f"{words.interval(gained['vs_fastest'])} the fastest baseline ({rivals})"
    said += "" if gained["faster"] else ": not shown to be faster"
    return said if rivals == SEED else f"{said}; {words.interval(gained['vs_seed'])} the seed"
