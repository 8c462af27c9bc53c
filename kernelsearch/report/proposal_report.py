"""The results of proposals: a table of rates for people, and data for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from kernelsearch.core import formats
from kernelsearch.kernel.source import Kernel

MOST_REASONS = 8


@dataclass(frozen=True)
class ProposalResult:
    """One answer: the stages that it passed in order, which stage refused it and why, its time over the parent's."""

    answer: str
    edit: str
    kernel: Kernel | None = None
    passed: tuple[str, ...] = ()
    refused: str = ""
    reason: str = ""
    ratio: float | None = None
    note: str = ""


@dataclass
class ProposalReport:
    """All answers of one proposer for one kernel, and the stages that were checked."""

    task: str
    kernel: str
    proposer: str
    stages: tuple[str, ...]
    proposals: list[ProposalResult] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    tokens_in: int = 0
    tokens_out: int = 0
    tokens_cached: int = 0
    seconds: float = 0.0
    usd: float = 0.0


def compute_rates(report: ProposalReport) -> list[tuple[str, int, float]]:
    """Each stage, how many passed it, and the share of all answers."""
    n = max(1, len(report.proposals))
    counts = [(stage, sum(stage in p.passed for p in report.proposals)) for stage in report.stages]
    return [(stage, count, count / n) for stage, count in counts]


def as_text(report: ProposalReport) -> str:
    """The table, the commonest reasons, and the best proposal."""
    n = len(report.proposals)
    kernels = len({p.kernel.digest for p in report.proposals if p.kernel})
    answers, different = formats.format_count(n, "answer"), formats.format_count(kernels, "different kernel")
    lines = [f"{report.task} {report.kernel[:8]}: {answers} of {report.proposer}, {different}"]
    if n:
        lines += [f"  {stage:9s} {count:5d}  {100 * rate:5.1f} %" for stage, count, rate in compute_rates(report)]
    reasons = Counter((p.refused, _shorten(p.reason)) for p in report.proposals if p.refused not in ("", "faster"))
    if reasons:
        lines.append("  refused because:")
        lines += [f"    {count:4d}  {stage}: {reason}" for (stage, reason), count in reasons.most_common(MOST_REASONS)]
    best = min((p for p in report.proposals if p.ratio), key=lambda p: p.ratio, default=None)
    if best is not None:
        lines.append(f"  best: {1 / best.ratio:.2f}x the parent by {best.edit}, kernel {best.kernel.digest[:8]}")
    if report.seconds:
        cost = f", ${report.usd:.4f}" if report.usd else ""
        lines.append(
            f"  {report.tokens_in:,} tokens in ({report.tokens_cached:,} cached), {report.tokens_out:,} out, "
            f"{formats.format_duration(report.seconds)}{cost}"
        )
    lines += [f"  no answer: {reason}" for reason in dict.fromkeys(report.failures)]
    return "\n".join(lines) + "\n"


def as_dict(report: ProposalReport) -> dict[str, Any]:
    """The report as JSON's types."""
    return {
        **vars(report),
        "n": len(report.proposals),
        "stages": {stage: {"passed": count, "rate": round(rate, 4)} for stage, count, rate in compute_rates(report)},
        "seconds": round(report.seconds, 3),
        "proposals": [
            {
                **vars(p),
                "kernel": p.kernel.digest if p.kernel else None,
                "refused": p.refused or None,
                "source": p.kernel.render() if p.kernel else None,
            }
            for p in report.proposals
        ],
    }


def _shorten(reason: str, most: int = 90) -> str:
    text = " ".join(reason.split())
    return text if len(text) <= most else f"{text[:most]}..."
