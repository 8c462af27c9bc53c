"""Hints as text for people, as wide as the terminal, and as data."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import dataclass
from typing import Any

from kernelsearch.core import formats
from kernelsearch.core.types import Config
from kernelsearch.measure.hints.changes import Finding, round_for_people
from kernelsearch.measure.hints.findings import MOST, LauncherCall, diagnose
from kernelsearch.measure.static_model.counters import Counters
from kernelsearch.measure.static_model.device_launch import DeviceLaunch
from kernelsearch.record.rows import columns

WIDEST = 120


@dataclass(frozen=True)
class HintReport:
    """The hints of one kernel: for each shape its label and its call."""

    task: str
    kernel: str
    config: Config
    device: str
    calls: tuple[tuple[str, LauncherCall], ...]
    missing: tuple[str, ...] = ()


def as_text(report: HintReport) -> str:
    """The report for people."""
    config = formats.format_config(report.config)
    lines = _wrapped(f"{report.task} {report.kernel[:8]}, {config}, for {report.device}", "", "  ")
    for label, call in report.calls:
        lines += ["", *_wrapped(f"{label}: {_time(call)}", "", "  ")]
        for launch in call.launches:
            lines += _wrapped(_launch(launch), "  ", "    ")
            if launch.counters is not None:
                lines += _wrapped(_counters(launch.counters), "    ", "    ")
        for number, finding in enumerate(diagnose(call)[:MOST], 1):
            lines += _finding(number, finding)
    lines += [""] if report.missing else []
    for what in report.missing:
        lines += _wrapped(f"not available: {what}", "", "  ")
    return "\n".join(lines) + "\n"


def as_dict(report: HintReport) -> dict[str, Any]:
    """The report as JSON's types."""
    return {
        **columns(report, "task kernel device"),
        "config": dict(report.config),
        "shapes": [
            {
                "shape": label,
                "time_us": call.time_us,
                "evidence": None if call.time_us is None else _evidence(call),
                "roofline_us": call.roofline_us,
                "launches": list(map(_launch_dict, call.launches)),
                "hints": [{**vars(f.hint), "lost": round(f.lost, 3)} for f in diagnose(call)[:MOST]],
            }
            for label, call in report.calls
        ],
        "missing": list(report.missing),
    }


def _evidence(call: LauncherCall) -> str:
    return "measured" if call.measured else "estimated"


def _time(call: LauncherCall) -> str:
    roofline = call.roofline_us
    if call.time_us is None:
        return f"roofline {formats.format_time(roofline)}"
    percent, time = 100 * roofline / call.time_us, formats.format_time(call.time_us)
    return f"{time} {_evidence(call)}, roofline {formats.format_time(roofline)} ({percent:.0f} %)"


def _launch(launch: DeviceLaunch) -> str:
    m = launch.machine
    parts = [
        formats.format_count(launch.programs, "program"),
        formats.format_count(m.num_warps, "warp"),
        f"{m.registers} registers",
        f"{m.shared:,} B shared",
        f"{launch.occupancy} programs an SM",
    ]
    if m.stack_bytes:
        parts.append(f"{m.stack_bytes} B stack")
    widths = ", ".join(f"{n} of {width} B" for width, n in sorted(m.mix.loads.items()))
    if widths:
        parts.append(f"loads a thread: {widths}")
    return f"{launch.function}: {'; '.join(parts)}"


def _counters(c: Counters) -> str:
    waits = ", ".join(f"{what} {share:.0%}" for what, share in c.longest_waits)
    return (
        f"counters: {c.dram_bytes / 1e9:.3g} GB to and from memory at {c.bandwidth_percent:.0f} % of its bandwidth; "
        f"L2 hits {c.l2_hit_percent:.0f} %; issue slots {c.issue_percent:.0f} % busy; {c.warps_percent:.0f} % of the "
        f"warps an SM can hold; they wait for {waits or 'nothing'}"
    )


def _launch_dict(launch: DeviceLaunch) -> dict[str, Any]:
    m = launch.machine
    parts = {name: getattr(launch, f"{name}_us") for name in ("dram", "l2", "tensor", "issue", "special")}
    parts |= {"shared": launch.shared_memory_us(True), "launch": launch.target.launch_us}
    return {
        **columns(launch, "function programs"),
        **columns(m, "num_warps registers stack_bytes"),
        "shared_bytes": m.shared,
        "programs_per_sm": launch.occupancy,
        "loads_by_bytes": dict(m.mix.loads),
        "stores_by_bytes": dict(m.mix.stores),
        "layout_conversion_bytes": launch.code.conversions,
        "counters": {**vars(c), "waits": dict(c.waits)} if (c := launch.counters) else None,
        "parts_us": {name: round_for_people(us) for name, us in parts.items()},
    }


def _finding(number: int, finding: Finding) -> list[str]:
    head, why, advice = formats.explain_hint(finding.hint)
    lines = [*_wrapped(f"{number}. {head}", "  ", "     "), *_wrapped(why, "     ", "     ")]
    return [*lines, *_wrapped(advice, "     -> ", "        ")]


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    width = min(WIDEST, shutil.get_terminal_size((80, 24)).columns)
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
