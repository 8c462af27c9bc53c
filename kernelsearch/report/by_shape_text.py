"""One line about what the best confirmed candidate of each shape gains together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.report.findings import describe_gain


def format_gain_by_shape(gain: Mapping[str, Any] | None) -> str:
    """`by shape: 1.03x [1.02, 1.04] the fastest baseline (...); who runs where` for `measure.timing.by_shape.compute_gain`.

    Empty without a gain, and where one candidate runs at all shapes: its own headline says it.
    """
    if gain is None or len({(s["name"], str(s["config"])) for s in gain["shapes"]}) == 1:
        return ""
    labels: dict[str, list[str]] = {}
    for shape in gain["shapes"]:
        labels.setdefault("the seed" if shape["name"] == SEED else shape["name"], []).append(shape["label"])
    return f"by shape: {describe_gain(gain)}; " + ", ".join(f"{n} at {' and '.join(at)}" for n, at in labels.items())
