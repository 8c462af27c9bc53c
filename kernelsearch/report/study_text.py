"""A study's findings as a page of Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def as_markdown(found: Mapping[str, Any]) -> str:
    """The report: what was run where, gains by task, wins and ties, areas, edits."""
    return (
        "\n".join([*_head(found), *_tasks(found), *_won(found), *_areas(found), *_spent(found), *_edits(found)]) + "\n"
    )


def _head(found: Mapping[str, Any]) -> list[str]:
    measured = " and ".join(found["evidence"])
    versions = "; ".join(", ".join(f"{k} {v}" for k, v in json.loads(one).items()) for one in found["versions"])
    runs = found["runs"]
    trials, reused = sum(r["trials"] for r in runs), sum(r["reused"] for r in runs)
    whole = sum(r["finished"] for r in runs)
    warning = (
        []
        if found["evidence"] == ["measured"]
        else [
            "",
            "**These times are estimated by the static model, not measured: they say how the arms search, not what is gained.**",
        ]
    )
    return [
        f"# Study {found['study']}",
        "",
        f"{found['first_run'][:10]}, {', '.join(found['targets'])}, {measured} ({versions}).",
        f"{len(runs)} runs, {whole} of them finished; {trials} trials, {reused} of which had been measured before in the same "
        "database and were not measured again (they count as trials all the same).",
        *warning,
        "",
        "Gain is the seed's time over the best time so far: geometric mean over the seeds, 95 % bootstrap interval over the "
        "seeds in brackets.",
        "",
    ]


def _tasks(found: Mapping[str, Any]) -> list[str]:
    lines = [
        "## Gain over the seed",
        "",
        _row(["task", "arm", "seeds", *(f"{n} trials" for n in found["checkpoints"]), "over the fastest baseline"]),
    ]
    lines.append(_rule(4 + len(found["checkpoints"])))
    for task, told in found["tasks"].items():
        for i, arm in enumerate(found["arms"]):
            one = told["arms"][arm]
            points = [one["at"][str(n)] for n in found["checkpoints"]]
            over = points[-1]["over_fastest"]
            named = f" ({', '.join(told['fastest_baseline']['names'])})" if told["fastest_baseline"] else ""
            said = f"{over:.3f}{named}" if over else "-"
            whole = points[-1]["n"]  # a run that was cut counts at the checkpoints that it reached
            seeds = str(whole) if whole == len(one["seeds"]) else f"{whole} of {len(one['seeds'])}"
            lines.append(_row([task if i == 0 else "", arm, seeds, *map(_gain, points), said]))
    return [*lines, ""]


def _won(found: Mapping[str, Any]) -> list[str]:
    subject, others = found["subject"], found["arms"][1:]
    if not others:
        return []
    lines = [
        f"## {subject} against the others after {found['checkpoints'][-1]} trials",
        "",
        f"Ratio of gains, above 1 where {subject} is ahead, with the interval of the ratio. A win or a loss: the two arms' "
        "intervals do not cross.",
        "",
        _row(["task", *others]),
        _rule(1 + len(others)),
    ]
    for task, told in found["tasks"].items():
        cells = [told["against"][arm] for arm in others]
        lines.append(_row([task, *(_ratio(c) for c in cells)]))
    lines += ["", *(_counted(arm, found["won"][arm]) for arm in others), ""]
    return lines


def _counted(arm: str, won: Mapping[str, Any]) -> str:
    if not won["tasks"]:
        return f"- {arm}: too few seeds to compare"
    worst = f", worst ratio {won['worst']:.3f}"
    return f"- {arm}: {won['win']} won, {won['tie']} tied, {won['loss']} lost of {won['tasks']}{worst}"


def _areas(found: Mapping[str, Any]) -> list[str]:
    lines = [
        "## Area under the curve",
        "",
        f"The mean over trials 1 to {found['checkpoints'][-1]} of the gain's logarithm, as a gain.",
        "",
        _row(["task", *found["arms"]]),
        _rule(1 + len(found["arms"])),
    ]
    for task, told in found["tasks"].items():
        lines.append(_row([task, *(_gain(told["arms"][arm]["area"]) for arm in found["arms"])]))
    return [*lines, ""]


def _spent(found: Mapping[str, Any]) -> list[str]:
    if not any(found["spent"].values()):
        return []
    lines = [
        "## What the models cost",
        "",
        "Sums over the runs of an arm. Tried: kernels of theirs that were judged; improved: "
        "faster than their parents, each after its own tuning; waited: seconds of their answers.",
        "",
        _row(
            [
                "arm",
                "asked",
                "runs",
                "calls",
                "failed",
                "tokens in",
                "tokens out",
                "US dollars",
                "waited",
                "tried",
                "improved",
            ]
        ),
        _rule(11),
    ]
    for arm, asked in found["spent"].items():
        for one in asked:
            counts = (f"{one[name]:,}" for name in ("runs", "calls", "failures", "tokens_in", "tokens_out"))
            lines.append(
                _row(
                    [
                        arm,
                        one["by"],
                        *counts,
                        f"{one['usd']:.4f}",
                        f"{one['seconds']:.1f} s",
                        str(one["kernels"]),
                        str(one["improvements"]),
                    ]
                )
            )
    return [*lines, ""]


def _edits(found: Mapping[str, Any]) -> list[str]:
    lines = ["## What the edits contributed", ""]
    for arm, edits in found["edits"].items():
        if not edits:
            continue
        lines += [
            f"### {arm}",
            "",
            "Tried: structures made with it; improved: by 1 % or more on their parent, each after its own tuning; "
            "in the best: runs whose best kernel it helped to make.",
            "",
            _row(["edit", "tried", "accepted", "improved", "in the best", "median gain", "best gain"]),
            _rule(7),
        ]
        for e in edits:
            gains = [f"{e[k]:.3f}" if e[k] else "-" for k in ("median_gain", "best_gain")]
            lines.append(_row([e["edit"], *(str(e[k]) for k in ("tried", "accepted", "improved", "in_best")), *gains]))
        lines.append("")
    return lines


def _gain(told: Mapping[str, Any]) -> str:
    if told["mean"] is None:
        return "-"
    spread = f" [{told['low']:.3f}, {told['high']:.3f}]" if told["low"] is not None else ""
    return f"{told['mean']:.3f}{spread}"


def _ratio(told: Mapping[str, Any] | None) -> str:
    return f"{told['said']} {told['ratio']:.3f} [{told['low']:.3f}, {told['high']:.3f}]" if told else "-"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return f"|{'---|' * columns}"
