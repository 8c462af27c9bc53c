"""The leaderboard as plain text: a table per task, device and evidence, in 80 columns unless a name is longer.

A config that fits beside its row stands there; where one does not, every row of the table has its config below it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from kernelsearch.core import words
from kernelsearch.report import by_shape

Row = dict[str, Any]
GAP = "  "
LEFT = ("kernel", "last edit", "by", "config", "baseline", "found")


def as_text(found: Sequence[Row], gained: Mapping[tuple[str, str], Row] | None = None, width: int = 80) -> str:
    """One table per task, device and evidence; the evidence stands in each title and over each speedup.

    gained (`leaderboard.gains_by_shape`) says below a confirmed table what its kernels give together, where they differ
    by shape.
    """
    if not found:
        return "no accepted kernel yet\n"
    groups: dict[tuple[str, str, str], list[Row]] = {}
    for row in found:
        groups.setdefault((row["task"], row["device"], row["evidence"]), []).append(row)
    blocks = []
    for (task, device, evidence), members in groups.items():
        lines = _confirmed(members, width) if evidence == "confirmed" else _searched(members, evidence, width)
        if evidence == "confirmed" and (said := by_shape.line((gained or {}).get((task, device)))):
            lines += textwrap.wrap(said, width, subsequent_indent="   ", break_long_words=False)
        blocks.append("\n".join([f"{task} on {device}, {evidence}", *lines]))
    return "\n\n".join(blocks) + "\n"


def _searched(members: Sequence[Row], evidence: str, width: int) -> list[str]:
    """Rows of one search: against the seed, with the trial that found each and the edit that made it."""
    head = ["#", "kernel", f"x seed ({evidence})", "time"]
    confirmed = any(row["confirmed_us"] for row in members)
    others = any((row["proposer"] or "edits") != "edits" for row in members)
    runs = len({row["run"] for row in members}) > 1
    head += [
        *(["confirmed"] if confirmed else []),
        "run/trial" if runs else "trial",
        "last edit",
        *(["by"] if others else []),
    ]
    cells = []
    for row in members:
        line = [str(row["rank"]), row["kernel"][:8], f"{row['speedup']:.2f}", words.time(row["time_us"])]
        line += [words.time(row["confirmed_us"]) if row["confirmed_us"] else "-"] if confirmed else []
        cells.append([*line, _trial(row, runs), row["edit"] or "seed", *([_proposer(row)] if others else [])])
    return _with_configs(head, cells, [words.config(row["config"]) for row in members], width)


def _confirmed(members: Sequence[Row], width: int) -> list[str]:
    """The headline: against the fastest baseline, with its interval, and the share of this device's roofline.

    Below each row stand where the kernel comes from, its config, and the clocks that it was timed at.
    """
    head = ["#", "kernel", "x fastest baseline", "x seed", "time", "roofline", "baseline"]
    cells, below = [], []
    for row in members:
        against = "-"
        if row["vs_fastest"]:
            against = f"{row['vs_fastest']:.3f} [{row['vs_fastest_low']:.3f}, {row['vs_fastest_high']:.3f}]"
        cells.append(
            [
                str(row["rank"]),
                row["kernel"][:8],
                against,
                f"{row['speedup']:.2f}",
                words.time(row["time_us"]),
                f"{row['roofline']:.1%}" if row["roofline"] else "-",
                row["fastest"] or "-",
            ]
        )
        by = f"{row['edit'] or 'seed'} by {_proposer(row)}" if row["edit"] else "the seed"
        found = f", trial {row['number']} of run {row['run']}" if row["number"] is not None else ", measured on its own"
        below.append(f"{by}{found}; {words.config(row['config'])}{_clocks(row)}")
    return _below(_table(head, cells), below, width)


def _clocks(row: Row) -> str:
    found = sorted({round(c["sm_mhz"]) for c in (row["clocks"] or {}).values() if c})
    return f"; SMs at {' to '.join(dict.fromkeys(map(str, (found[0], found[-1]))))} MHz" if found else ""


def _trial(row: Row, runs: bool) -> str:
    return f"{row['run']}/{row['number']}" if runs else str(row["number"])


def _proposer(row: Row) -> str:
    return row["proposer"] or "-"


def _with_configs(head: list[str], cells: list[list[str]], configs: list[str], width: int) -> list[str]:
    beside = _table([*head, "config"], [[*line, config] for line, config in zip(cells, configs, strict=True)])
    if max(map(len, beside)) <= width:
        return beside
    return _below(_table(head, cells), configs, width)


def _below(table: list[str], texts: list[str], width: int) -> list[str]:
    lines = [table[0]]
    for row, text in zip(table[1:], texts, strict=True):
        lines += [
            row,
            *textwrap.wrap(text, width, initial_indent="   ", subsequent_indent="   ", break_long_words=False),
        ]
    return lines


def _table(head: list[str], cells: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    return [
        GAP.join(_padded(text, name, w) for text, name, w in zip(line, head, widths, strict=True)).rstrip()
        for line in (head, *cells)
    ]


def _padded(text: str, column: str, width: int) -> str:
    return text.ljust(width) if column in LEFT else text.rjust(width)
