"""What a run's models cost and brought: calls, tokens, seconds and dollars, in all and per improvement."""

from __future__ import annotations

from typing import Any

from kernelsearch.core import words
from kernelsearch.record.store import Store

NOTICED = 1.005
"""A gain over the parent from which a kernel counts as an improvement."""


def as_dict(store: Store, run: int) -> list[dict[str, Any]]:
    """One entry for each arm that was asked (`model:NAME`, `repair:NAME`), in the order of their first calls.

    kernels are structures of the run that the arm made, improvements those that are faster than their parents were,
    each after its own tuning.
    """
    found: dict[str, dict[str, Any]] = {}
    for call in store.calls(run):
        arm = found.setdefault(call.arm, dict.fromkeys(_SUMS, 0) | {"arm": call.arm})
        arm["calls"] += 1
        arm["failures"] += bool(call.failure)
        arm["answers"] += len(call.answers)
        for name in ("tokens_in", "tokens_cached", "tokens_out", "seconds", "waited", "usd"):
            arm[name] += getattr(call, name)
    for row in store.query("SELECT edit, gain FROM lineage WHERE run = ?", [run]):
        if row["edit"] in found:
            found[row["edit"]]["kernels"] += 1
            found[row["edit"]]["improvements"] += (row["gain"] or 0) > NOTICED
    return list(found.values())


def as_text(arms: list[dict[str, Any]]) -> list[str]:
    """A line for each arm; none without a model."""
    lines = []
    for arm in arms:
        tokens = arm["tokens_in"] + arm["tokens_out"]
        parts = [
            f"{arm['calls']} call{'s' if arm['calls'] != 1 else ''}"
            + (f" ({arm['failures']} failed)" if arm["failures"] else "")
        ]
        parts.append(f"{tokens:,} tokens" + (f", ${arm['usd']:.4f}" if arm["usd"] else ""))
        parts.append(f"{words.duration(arm['seconds'])} of thinking, {words.duration(arm['waited'])} of waiting for it")
        parts.append(f"{arm['kernels']} kernels tried, {arm['improvements']} faster than their parents")
        if arm["improvements"]:
            each = f"{tokens / arm['improvements']:,.0f} tokens"
            parts.append(f"{each}{', $' + format(arm['usd'] / arm['improvements'], '.4f') if arm['usd'] else ''} each")
        lines.append(f"  {arm['arm']}: {'; '.join(parts)}")
    return lines


_SUMS = (
    "calls",
    "failures",
    "answers",
    "tokens_in",
    "tokens_cached",
    "tokens_out",
    "seconds",
    "waited",
    "usd",
    "kernels",
    "improvements",
)
