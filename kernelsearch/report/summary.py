"""The summary of a run: the gain, the edits and the shapes that it comes from, and how to continue."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kernelsearch.core import formats
from kernelsearch.core.decision_tree import format_tree
from kernelsearch.core.types import LEAST_GAIN, TaskFacts, Trial, is_gain
from kernelsearch.measure.timing import by_shape
from kernelsearch.measure.timing.baselines import SEED
from kernelsearch.record import family_tree
from kernelsearch.record.confirmation_rows import CONFIRMED, count_gain
from kernelsearch.record.rows import candidate_digest, columns
from kernelsearch.record.steps import CONFIG_ALONE, is_config_alone, load_step_gains
from kernelsearch.record.store import Store
from kernelsearch.report import findings as confirmed
from kernelsearch.report import model_costs
from kernelsearch.report.findings import Finding, format_gain_by_shape
from kernelsearch.report.tables import build_table, format_table, measurement_of
from kernelsearch.search import Result
from kernelsearch.search.between import fit_trees
from kernelsearch.search.history import score_of, time_of
from kernelsearch.trial.estimate import explain_extrapolation

MOST_OF_REASON = 200


def as_dict(
    store: Store, task: TaskFacts, result: Result, findings: Sequence[Finding] = (), failures: Sequence[str] = ()
) -> dict[str, Any]:
    """For `--json`. speedup is the seed's time over the best kernel's, geometric mean over the timed shapes.

    steps are the best kernel's ancestors after the seed: gain is what each gains over its parent when all have the best
    kernel's config (`record/steps.py`), own_gain the same when each has the best of its own; tuning and own_tuning are
    the seed's gain from its config alone. findings are the finalists', by the confirmed protocol, best first; by_shape
    is their gain when each shape runs its best. table is the search's own (`report/tables.py`), with its tree, and what
    that costs between the shapes over the fastest there. failures are sentences on the user's own edits that failed.
    """
    chosen = by_shape.choose_findings(findings, result.run.facts.kernels)
    covered = set(chosen) == {s.key for s in task.shapes}
    best, seed = result.best, result.trials[0] if result.trials else None
    summary: dict[str, Any] = {
        "task": task.name,
        "run": result.run.id,
        "strategy": result.run.facts.strategy,
        "trials": len(result.trials),
        "budget": result.run.facts.trials,
        "seconds": round(result.seconds, 1),
        "interrupted": result.interrupted,
        "used_up": result.used_up,
        "kernels": len({t.kernel for t in result.trials}),
        "accepted_kernels": len({t.kernel for t in result.trials if t.accepted}),
        "verdicts": dict(Counter(t.outcome.verdict.word.value for t in result.trials)),
        "rejected": _count_rejected(result.trials),
        "confirmed": list(findings),
        "by_shape": by_shape.compute_gain(chosen) if covered else None,
        "seed": {"configs": result.run.seed_configs, "config": dict(seed.config) if seed else None},
        "failures": list(failures),
        "models": model_costs.as_dict(store, result.run.id),
        "best": None,
    }
    if best is None or seed is None or not seed.accepted:
        return summary
    measurement, first = measurement_of(best), measurement_of(seed)
    chain = family_tree.ancestors(family_tree.load_tree(store, result.run.id), best.kernel)
    gained_by = load_step_gains(store, candidate_digest(result.run.task, best.kernel, best.config), measurement.device)
    table, serving = build_table(result.run, result.trials, {s.key: s.label for s in task.shapes})
    shapes = [_shape(task, result, best, t.shape, serving.get(t.shape, seed)) for t in first.times]
    gained = is_gain(1 / score_of(best)) or (len(shapes) > 1 and bool(serving))
    if chosen:
        gained = any(f["name"] != SEED for f in chosen.values())
    summary["best"] = {
        "kernel": best.kernel,
        "trial": best.number,
        "config": dict(best.config),
        "score": best.score,
        "speedup": 1 / score_of(best),
        "evidence": measurement.evidence.value,
        "device": measurement.device,
        "gained": gained,
        "gain_evidence": CONFIRMED if chosen else measurement.evidence.value,
        "tuning": gained_by.get(seed.kernel),
        "own_tuning": 1 / chain[0].score if chain and chain[0].score else 1.0,
        "table": {**table, "tree": fit_trees(task, result)[0], "regret": result.regret},
        "steps": [
            {**columns(s, "kernel edit rationale proposer"), "gain": gained_by.get(s.kernel), "own_gain": s.gain}
            for s in chain[1:]
        ],
        "shapes": shapes,
        "note": explain_extrapolation(measurement, first),
    }
    return summary


def as_text(
    store: Store,
    task: TaskFacts,
    result: Result,
    resume: str = "",
    findings: Sequence[Finding] = (),
    failures: Sequence[str] = (),
) -> str:
    """The same in words, at most 80 columns where names allow; resume is the command that continues the run."""
    facts = as_dict(store, task, result, findings, failures)
    lines = [_counts(facts), *map(_rejection, facts["rejected"])]
    if format_gain_by_shape(facts["by_shape"]):
        table = confirmed.format_table(facts["by_shape"], findings[0])
        lines += [f"confirmed {table[0]}", *(f"  {line}" for line in table[1:])]
    elif findings:
        lines.append(f"confirmed: {confirmed.format_headline(findings[0])}")
        lines += [f"  {line}" for line in confirmed.as_text(findings[0]).splitlines()[1:]]
        lines += [f"  also confirmed: {confirmed.format_headline(other)}" for other in findings[1:]]
    best = facts["best"]
    if best:
        lines += _gains(best, facts["seed"]["configs"])
        lines.append(f"  {best['evidence']} time per shape on {best['device']}:")
        ranked = sorted(best["shapes"], key=lambda s: s["seed_us"] / s["table_us"])
        lines += formats.shorten_rows(list(map(_shape_line, ranked)))
        lines += [f"  {best['note']}"] if best["note"] else []
    lines += [f"note: {failure}" for failure in failures]
    lines += model_costs.as_text(facts["models"])
    if result.interrupted:
        lines.append(f"interrupted after {facts['trials']} of {facts['budget']} trials; all of them are stored")
        if resume:
            lines.append(f"go on with: {resume}")
    elif result.used_up:
        lines.append("ended early: no untried config and no new rewrite was left")
    return "\n".join(lines) + "\n"


def _counts(facts: dict[str, Any]) -> str:
    rejected = {w: n for w, n in facts["verdicts"].items() if w != "accept"}
    detail = ", ".join(f"{n} {formats.format_verdict(w)}" for w, n in sorted(rejected.items(), key=lambda i: -i[1]))
    kernels = formats.format_kernels(facts["kernels"], facts["accepted_kernels"])
    counts = f"{formats.format_count(facts['trials'], 'trial')} of {kernels}"
    accepted = f"{facts['verdicts'].get('accept', 0)} accepted" + (f" ({detail})" if detail else "")
    return f"{facts['task']}: {counts} in {formats.format_duration(facts['seconds'])}, {accepted}"


def _count_rejected(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """The rejected trials by verdict and stage, each with its most frequent reason, most frequent first.

    Reasons that differ in numbers only are one; others is how many trials had another one.
    """
    kinds: dict[tuple[str, str], list[str]] = {}
    for trial in trials:
        verdict = trial.outcome.verdict
        if not verdict.accepted:
            kinds.setdefault((verdict.word.value, verdict.stage), []).append(formats.shorten_reason(verdict.reason))
    rejected = []
    for (word, stage), reasons in sorted(kinds.items(), key=lambda kind: -len(kind[1])):
        alike = Counter(formats.blank_numbers(reason) for reason in reasons)
        (most, count), *_ = alike.most_common(1)
        reason = next(r for r in reasons if formats.blank_numbers(r) == most)
        others = len(reasons) - count
        rejected.append({"verdict": word, "stage": stage, "trials": len(reasons), "reason": reason, "others": others})
    return rejected


def _rejection(kind: dict[str, Any]) -> str:
    reason = textwrap.shorten(kind["reason"], MOST_OF_REASON, placeholder=" ...") or "no reason was given"
    others = f"; and {kind['others']} for another reason" if kind["others"] else ""
    return f"  {kind['trials']} {formats.format_verdict(kind['verdict'])} ({kind['stage']}): {reason}{others}"


def choose_kernel(result: Result, findings: Sequence[Finding] = ()) -> str | None:
    """The digest of the kernel that is the best over all shapes: the seed where nothing gains over it (`is_gain`)."""
    if result.best is None:
        return None
    whole = next((f for f in findings if not confirmed.is_champion(f) and f["vs_seed"]), None)
    kernel, gain = (whole["kernel"], count_gain(whole)) if whole else (result.best.kernel, 1 / score_of(result.best))
    return kernel if is_gain(gain) else result.trials[0].kernel


def _gains(best: dict[str, Any], configs: int) -> list[str]:
    if not best["gained"]:
        seed = formats.format_seed(configs)
        return [f"nothing was gained: nothing is faster than {seed} by {LEAST_GAIN:.0%} ({best['gain_evidence']})"]
    speedup, lines = formats.format_speedup(best["score"], best["evidence"], configs), []
    if len(best["shapes"]) > 1:
        lines += format_table(best["table"], best["evidence"], configs)
        named = best["table"]["tree"].items()
        trees = [[f"{group}:"] * (len(named) > 1) + format_tree(tree) for group, tree in named]
        lines += [f"  {line}" for tree in trees for line in tree if sum(map(len, trees)) > 1]
        if regret := best["table"]["regret"]:
            slower = f"{regret['median']:.1%} in the median, {regret['worst']:.1%} at worst"
            lines.append(f"  between the shapes slower than the fastest of these by {slower}")
            lines.append(f"    ({regret['evidence']} at {len(regret['sizes'])} drawn sizes; worst: {regret['at']})")
        speedup += ", which runs where it is faster"
        lines += ["  note: the seed has one config at all shapes, not the best of its list per key"] * bool(configs)
    lines += [
        f"best: {speedup}, kernel {best['kernel'][:8]}, trial {best['trial']}",
        f"  config {formats.format_config(best['config'])}",
    ]
    # not timed: the run ended before the steps were
    timed = any(gain is not None for gain in (best["tuning"], *(s["gain"] for s in best["steps"])))
    config = "all with the best kernel's config" if timed else "each kernel with its own best config"
    mean = "the mean time, the seed's where it is faster," if len(best["shapes"]) > 1 else "the time"
    lines.append(f"  gain: {mean} before a step over that after it, {config} ({best['evidence']})")
    rows = [(best["tuning"] if timed else best["own_tuning"], "config of the seed")]
    if best["steps"] and formats.format_gain(rows[0][0]) == "1.00x":
        rows = []
    for step in best["steps"]:
        change = ": ".join(filter(None, (step["edit"] or "another kernel", step["rationale"])))
        rows.append((step["gain"] if timed else step["own_gain"], change))
    lines.append(f"    {'gain':>6}  step")
    lines += [f"    {formats.format_gain(gain):>6}  {change}" for gain, change in rows]
    if best["steps"] and len(best["table"]["entries"]) < 2 and is_config_alone(best["speedup"], best["tuning"]):
        lines.append(f"  {CONFIG_ALONE}")
    return lines


def _shape(task: TaskFacts, result: Result, best: Trial, key: str, serving: Trial) -> dict[str, Any]:
    label = next((s.label for s in task.shapes if s.key == key), key)
    seed_us = measurement_of(result.trials[0]).time_us(key)
    return {
        "shape": key,
        "label": label,
        "seed_us": seed_us,
        "best_us": measurement_of(best).time_us(key),
        "table_us": time_of(serving, key),
        "by": serving.kernel if serving is not result.trials[0] else None,
        "by_trial": serving.number if serving is not result.trials[0] else None,
    }


def _shape_line(shape: dict[str, Any]) -> str:
    seed = formats.format_time(shape["seed_us"])
    if shape["by"] is None:
        return f"    {shape['label']}: {seed} (seed)"
    gain = formats.format_gain(shape["seed_us"] / shape["table_us"])
    return (
        f"    {shape['label']}: {seed} -> {formats.format_time(shape['table_us'])}, {gain} by trial {shape['by_trial']}"
    )
