"""The leaderboard as plain text: a table per task, device, evidence and `--shape`, in 80 columns if names allow it.

A config that fits beside its row stands there; if one does not fit, every row of the table has its config below it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from kernelsearch.core import formats
from kernelsearch.core.types import LEAST_GAIN, is_gain
from kernelsearch.record.rows import Row
from kernelsearch.report.findings import format_gain_by_shape
from kernelsearch.report.tables import format_table

GAP = "  "
LEFT = ("kernel", "last edit", "ties", "by", "config", "baseline")
"""Columns of text, which are aligned to the left."""
GROUP = ("task", "device", "evidence", "shapes")
"""What rows of one table share."""


def fold_ties(rows: Iterable[Row]) -> list[Row]:
    """Rows in their order; those that are slower than a row by less than what counts as a gain are its `ties`."""
    folded: list[Row] = []
    for row in ({**row, "ties": [], "part": None} for row in rows):
        head = folded[-1] if folded else None
        same = head and all(head[name] == row[name] for name in GROUP)
        (head["ties"] if head and same and not is_gain(head["speedup"] / row["speedup"]) else folded).append(row)
    return folded


def as_text(
    rows: Sequence[Row], gains: Mapping[tuple[str, str], Row] | None = None, width: int = 80, limit: int | None = None
) -> str:
    """One table per task, device and evidence; the evidence stands in each title and over each speedup.

    What a search found equally fast is one row. gains (`leaderboard.compute_gains_by_shape`) add a line to a confirmed
    table where the best kernels differ by shape. limit counts the rows of each table.
    """
    if not rows:
        return "no accepted kernel yet\n"
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in GROUP), []).append(row)
    groups = {place: (m if place[2] == "confirmed" else fold_ties(m))[:limit] for place, m in groups.items()}
    blocks = []
    for (task, device, evidence, shapes), members in groups.items():
        if evidence == "confirmed":
            lines = _confirmed_table(members, width)
            line = format_gain_by_shape((gains or {}).get((task, device)))
            lines += textwrap.wrap(line, width, subsequent_indent="   ", break_long_words=False)
        else:
            lines = _searched_table(members, evidence, width)
            if members[0]["speedup"] > 1 and not is_gain(members[0]["speedup"]):
                lines.append(f"none gains {LEAST_GAIN:.0%} over the seed: its own config counts as the best")
            if table := members[0].get("table"):
                told = format_table(table, evidence, members[0]["seed_configs"])
                lines += [textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False) for line in told]
        seeds = sorted({n for row in members if (n := row.get("seed_configs"))})
        lines += [f"x seed: {formats.format_seed(n)}" for n in seeds]
        title = f"{task} on {device}, {evidence}" + (f", at {shapes} only" if shapes else "")
        blocks.append("\n".join([title, *lines]))
    return "\n\n".join(blocks) + "\n"


def _searched_table(members: Sequence[Row], evidence: str, width: int) -> list[str]:
    """Rows of one search: against the seed, with the trial that found each and the edit that made it."""
    several = bool(members[0].get("table"))
    confirmed = any(row["confirmed_us"] for row in members)
    others = any((row["proposer"] or "edits") != "edits" for row in members)
    runs = len({row["run"] for row in members}) > 1
    table = []
    for row in members:
        line = {
            "#": str(row["rank"]),
            "kernel": row["kernel"][:8],
            f"x seed ({evidence})": formats.format_ratio(row["speedup"]),
            "mean time" if several else "time": formats.format_time(row["time_us"]),
        }
        if confirmed:
            line["confirmed" + " alone" * several] = formats.format_time(us) if (us := row["confirmed_us"]) else "-"
        line["run/trial" if runs else "trial"] = f"{row['run']}/{row['number']}" if runs else str(row["number"])
        line["last edit"] = row["edit"] or "seed"
        if any(row["ties"] for row in members):
            line["ties"] = f"+{len(row['ties'])}" if row["ties"] else ""
        if others:
            line["by"] = row["proposer"] or "-"
        table.append(line)
    configs = [formats.format_config(row["config"]) for row in members]
    beside = _align([{**line, "config": config} for line, config in zip(table, configs, strict=True)])
    if max(map(len, beside)) <= width:
        return beside
    if max(map(len, _align(table))) > width:
        configs = [f"{line.pop('last edit')}; {config}" for line, config in zip(table, configs, strict=True)]
    return _interleave(_align(table), configs, width)


def _confirmed_table(members: Sequence[Row], width: int) -> list[str]:
    """Rows with the gain over the fastest baseline, its interval, and the share of this device's roofline.

    Below each row stand where the kernel comes from, its config, and the clocks at which it was timed.
    """
    table, notes = [], []
    for row in members:
        interval = "{vs_fastest:.3f} [{vs_fastest_low:.3f}, {vs_fastest_high:.3f}]" if row["vs_fastest"] else "-"
        line = {
            "#": str(row["rank"]),
            "kernel": row["kernel"][:8],
            "x fastest baseline": interval.format_map(row),
            "x seed": formats.format_ratio(row["speedup"]),
            "time": formats.format_time(row["time_us"]),
            "roofline": f"{row['roofline']:.1%}" if row["roofline"] else "-",
            "baseline": row["fastest"] or "-",
        }
        table.append(line)
        origin = formats.format_origin(row["edit"], row["proposer"]) if row["edit"] else "the seed"
        own = row["number"] is None
        origin_trial = "measured on its own" if own else f"trial {row['number']} of run {row['run']}"
        clocks = sorted({round(c["sm_mhz"]) for c in (row["clocks"] or {}).values() if c})
        extremes = " to ".join(map(str, dict.fromkeys((clocks[0], clocks[-1])))) if clocks else ""
        at = f"; SMs at {extremes} MHz" if clocks else ""
        notes.append(f"{origin}, {origin_trial}; {formats.format_config(row['config'])}{at}")
    return _interleave(_align(table), notes, width)


def _interleave(table: list[str], notes: list[str], width: int) -> list[str]:
    """The table with a note, wrapped and indented, below each row."""
    wrapper = textwrap.TextWrapper(width, initial_indent="   ", subsequent_indent="   ", break_long_words=False)
    rows = zip(table[1:], notes, strict=True)
    return [table[0], *(line for row, note in rows for line in (row, *wrapper.wrap(note)))]


def _align(table: list[dict[str, str]]) -> list[str]:
    """The head and the rows as lines of equally wide columns."""
    head = {name: name for name in table[0]}
    widths = {name: max(len(line[name]) for line in (head, *table)) for name in head}
    return [
        GAP.join(line[n].ljust(w) if n in LEFT else line[n].rjust(w) for n, w in widths.items()).rstrip()
        for line in (head, *table)
    ]
