"""The results of proposals: a table for people, and data for programs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from kernelsearch.core import formats
from kernelsearch.kernel.source import Kernel


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
    evidence: str = ""


def compute_rates(report: ProposalReport) -> list[tuple[str, int, float]]:
    """Each stage, how many passed it, and the share of all answers."""
    n = max(1, len(report.proposals))
    counts = [(stage, sum(stage in p.passed for p in report.proposals)) for stage in report.stages]
    return [(stage, count, count / n) for stage, count in counts]


def as_text(report: ProposalReport) -> str:
    """A row for each answer, the fastest first and equal ones in one; how many passed each stage; and the cost."""
    n = len(report.proposals)
    kernels = len({p.kernel.digest for p in report.proposals if p.kernel})
    answers, different = formats.format_count(n, "answer"), formats.format_count(kernels, "different kernel")
    lines = [f"{report.task} {report.kernel[:8]}: {answers} of {report.proposer}, {different}"]
    if n:
        lines += [*_rows(report), f"  passed: {', '.join(_rates(report))}"]
    if report.seconds:
        cost = f", ${report.usd:.4f}" if report.usd else ""
        lines.append(
            f"  {report.tokens_in:,} tokens in ({report.tokens_cached:,} cached), {report.tokens_out:,} out, "
            f"{formats.format_duration(report.seconds)}{cost}"
        )
    lines += [f"  no answer: {reason}" for reason in dict.fromkeys(report.failures)]
    return "\n".join(lines) + "\n"


def _rows(report: ProposalReport) -> list[str]:
    """The table: a kernel's speed-up over its parent, or which stage refused it and why.

    Answers without a kernel are equal where their reasons differ in numbers only.
    """
    groups: dict[tuple[str, ...], list[ProposalResult]] = {}
    for p in report.proposals:
        reason = (p.refused, formats.blank_numbers(p.reason))
        groups.setdefault((p.kernel.digest, p.edit) if p.kernel else reason, []).append(p)
    ordered = sorted(groups.values(), key=lambda group: (group[0].ratio or math.inf, -len(group)))
    width = max(4, *(len(group[0].edit) for group in ordered))
    heads = f"  {'answers':>7}  {'kernel':8}  {'edit':{width}}  x parent ({report.evidence or 'not timed'})"
    rows = [heads]
    for first, *others in ordered:
        why = f"{first.refused}: {_shorten(first.reason)}" if first.refused else "not timed"
        change = first.answer if "\n" not in first.answer else ""  # an edit's sentence, and no source
        result = f"{1 / first.ratio:.2f}  {_shorten(change, 90)}".rstrip() if first.ratio else why
        digest = first.kernel.digest[:8] if first.kernel else "-"
        rows.append(f"  {1 + len(others):7}  {digest:8}  {first.edit or '-':{width}}  {result}")
    return rows


def _rates(report: ProposalReport) -> list[str]:
    """`6 gate (75 %)` for the last of the stages that equally many answers passed."""
    rates = compute_rates(report)
    ends = [rate for rate, after in zip(rates, [*rates[1:], None]) if after is None or after[1] != rate[1]]
    return [f"{count} {stage} ({share:.0%})".replace("%", " %") for stage, count, share in ends]


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


def _shorten(reason: str, most: int = 160) -> str:
    text = " ".join(reason.split())
    return text if len(text) <= most else f"{text[:most]}..."
