"""The results of a study as a page of Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kernelsearch.core import formats


def as_markdown(study: Mapping[str, Any]) -> str:
    """The report of `study_facts.collect_facts`: runs, gains by task, wins and ties, costs, edits."""
    parts = (_head, _tasks, _won, _spent, _edits)
    return "".join(f"{line}\n" for part in parts for line in part(study))


def _head(study: Mapping[str, Any]) -> list[str]:
    measured = " and ".join(study["evidence"])
    versions = "; ".join(", ".join(f"{k} {v}" for k, v in json.loads(one).items()) for one in study["versions"])
    runs = study["runs"]
    trials, reused = sum(r["trials"] for r in runs), sum(r["reused"] for r in runs)
    whole = sum(r["finished"] for r in runs)
    warning = (
        "**These times are estimated by the static model, not measured: they say how the arms search, not what is "
        "gained.**"
    )
    return [
        f"# Study {study['study']}",
        "",
        f"{study['first_run'][:10]}, {', '.join(study['targets'])}, {measured} ({versions}).",
        f"{len(runs)} runs, {whole} of them finished; {trials} trials, {reused} of which had been measured before in "
        "the same database and were not measured again (they count as trials all the same).",
        *(["", warning] if study["evidence"] != ["measured"] else []),
        "",
        "Gain is the seed's time over the best time so far: geometric mean over the seeds, 95 % bootstrap interval "
        "over the seeds in brackets.",
        "",
    ]


def _tasks(study: Mapping[str, Any]) -> list[str]:
    checkpoints = [f"{n} trials" for n in study["checkpoints"]]
    rows = []
    for task, results in study["tasks"].items():
        fastest = results["fastest_baseline"]
        names = f" ({', '.join(fastest['names'])})" if fastest else ""
        for i, arm in enumerate(study["arms"]):
            one = results["arms"][arm]
            points = [one["at"][str(n)] for n in study["checkpoints"]]
            over = points[-1]["over_fastest"]
            whole = points[-1]["n"]  # a run that was cut counts at the checkpoints that it reached
            seeds = str(whole) if whole == len(one["seeds"]) else f"{whole} of {len(one['seeds'])}"
            gains = [*map(_gain, points), f"{over:.3f}{names}" if over else "-"]
            rows.append(["" if i else task, arm, seeds, *gains])
    head = ["task", "arm", "seeds", *checkpoints, "over the fastest baseline"]
    tuned = {task: n for task, results in study["tasks"].items() if (n := results.get("seed_configs"))}
    notes = "; ".join(f"{task}: {formats.format_seed(n)}" for task, n in tuned.items())
    return _section("## Gain over the seed", f"Autotuned seeds: {notes}." if notes else "", head, rows)


def _won(study: Mapping[str, Any]) -> list[str]:
    subject, others = study["subject"], study["arms"][1:]
    if not others:
        return []
    rows = [[task, *(_ratio(t["against"][arm]) for arm in others)] for task, t in study["tasks"].items()]
    title = f"## {subject} against the others after {study['checkpoints'][-1]} trials"
    text = (
        f"Ratio of gains, above 1 where {subject} is ahead, with the interval of the ratio. A win or a loss: the two "
        "arms' intervals do not cross."
    )
    wins = [_describe_wins(arm, study["won"][arm]) for arm in others]
    return [*_section(title, text, ["task", *others], rows), *wins, ""]


def _describe_wins(arm: str, won: Mapping[str, Any]) -> str:
    if not won["tasks"]:
        return f"- {arm}: too few seeds to compare"
    worst = f", worst ratio {won['worst']:.3f}"
    return f"- {arm}: {won['win']} won, {won['tie']} tied, {won['loss']} lost of {won['tasks']}{worst}"


def _spent(study: Mapping[str, Any]) -> list[str]:
    if not any(study["spent"].values()):
        return []
    rows = [
        [
            arm,
            one["by"],
            *(f"{one[name]:,}" for name in ("runs", "calls", "failures", "tokens_in", "tokens_out")),
            f"{one['usd']:.4f}",
            f"{one['seconds']:.1f} s",
            *(str(one[name]) for name in ("kernels", "improvements")),
        ]
        for arm, models in study["spent"].items()
        for one in models
    ]
    head = "arm,asked,runs,calls,failed,tokens in,tokens out,US dollars,waited,tried,improved".split(",")
    text = (
        "Sums over the runs of an arm. Tried: kernels of theirs that were judged; improved: "
        "faster than their parents, each after its own tuning; waited: seconds of their answers."
    )
    return _section("## What the models cost", text, head, rows)


def _edits(study: Mapping[str, Any]) -> list[str]:
    text = (
        "Tried: structures made with it; improved: by 1 % or more on their parent, each after its own tuning; "
        "in the best: runs whose best kernel it helped to make."
    )
    head = "edit,tried,accepted,improved,in the best,median gain,best gain".split(",")
    lines = ["## What the edits contributed", ""]
    for arm, edits in study["edits"].items():
        rows = []
        for e in edits:
            counts = [str(e[name]) for name in ("edit", "tried", "accepted", "improved", "in_best")]
            rows.append(counts + [f"{e[name]:.3f}" if e[name] else "-" for name in ("median_gain", "best_gain")])
        lines += _section(f"### {arm}", text, head, rows) if rows else []
    return lines


def _gain(mean: Mapping[str, Any]) -> str:
    if mean["mean"] is None:
        return "-"
    spread = f" [{mean['low']:.3f}, {mean['high']:.3f}]" if mean["low"] is not None else ""
    return f"{mean['mean']:.3f}{spread}"


def _ratio(result: Mapping[str, Any] | None) -> str:
    return f"{result['said']} {result['ratio']:.3f} [{result['low']:.3f}, {result['high']:.3f}]" if result else "-"


def _section(title: str, text: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A title, a sentence (if any) and a table."""
    table = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]
    return [title, "", *([text, ""] if text else []), *table, ""]
