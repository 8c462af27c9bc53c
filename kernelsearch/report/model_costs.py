"""Costs and results of a run's models: calls, tokens, seconds and dollars, in total and per improvement."""

from __future__ import annotations

from typing import Any

from kernelsearch.core import formats
from kernelsearch.record import family_tree
from kernelsearch.record.store import Store

NOTICED = 1.005
"""A gain over the parent from which a kernel counts as an improvement."""

_SUMS = "calls failures answers tokens_in tokens_cached tokens_out seconds waited usd kernels improvements".split()


def as_dict(store: Store, run: int) -> list[dict[str, Any]]:
    """One entry for each arm that made calls (`model:NAME`, `repair:NAME`), in the order of their first calls.

    kernels are structures of the run that the arm made, improvements those that are faster than their parents,
    each after its own tuning.
    """
    arms: dict[str, dict[str, Any]] = {}
    for call in store.load_calls(run):
        arm = arms.setdefault(call.arm, dict.fromkeys(_SUMS, 0) | {"arm": call.arm})
        arm["calls"] += 1
        arm["failures"] += bool(call.failure)
        arm["answers"] += len(call.answers)
        for name in ("tokens_in", "tokens_cached", "tokens_out", "seconds", "waited", "usd"):
            arm[name] += getattr(call, name)
    for step in family_tree.load_tree(store, run).values() if arms else ():
        if step.edit in arms:
            arms[step.edit]["kernels"] += 1
            arms[step.edit]["improvements"] += (step.gain or 0) > NOTICED
    return list(arms.values())


def as_text(arms: list[dict[str, Any]]) -> list[str]:
    """A line for each arm; none without a model."""
    lines = []
    for arm in arms:
        tokens, improvements = arm["tokens_in"] + arm["tokens_out"], arm["improvements"]
        seconds, waited = formats.format_duration(arm["seconds"]), formats.format_duration(arm["waited"])
        parts = [
            formats.format_count(arm["calls"], "call") + (f" ({arm['failures']} failed)" if arm["failures"] else ""),
            f"{tokens:,} tokens" + (f", ${arm['usd']:.4f}" if arm["usd"] else ""),
            f"{seconds} of thinking, {waited} of waiting for it",
            f"{arm['kernels']} kernels tried, {improvements} faster than their parents",
        ]
        if improvements:
            dollars = f", ${arm['usd'] / improvements:.4f}" if arm["usd"] else ""
            parts.append(f"{tokens / improvements:,.0f} tokens{dollars} each")
        lines.append(f"  {arm['arm']}: {'; '.join(parts)}")
    return lines
