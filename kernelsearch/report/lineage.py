"""A kernel's history: the proposer, the change and the gain of each step from the seed to it; and its children."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from kernelsearch.core import formats
from kernelsearch.kernel.source import Kernel
from kernelsearch.propose.models.plan import IdeaPlan, format_idea
from kernelsearch.propose.proposers import recall_plan
from kernelsearch.record import family_tree, queries
from kernelsearch.record.family_tree import LineageStep
from kernelsearch.record.rows import candidate_digest
from kernelsearch.record.steps import load_step_gains
from kernelsearch.record.store import Store
from kernelsearch.report.tables import format_table, load_table


def as_dict(store: Store, digest: str, run: int | None = None) -> dict[str, Any]:
    """For `--json`: the run, its evidence, ancestors from the seed to the kernel with diffs, and children without."""
    run = family_tree.run_of(store, digest, run)
    steps = family_tree.load_tree(store, run)
    chain = family_tree.ancestors(steps, digest)
    known = load_gains(store, run, digest)
    best = {trial["kernel"]: trial["number"] for trial in queries.best_trials(store, run, abandoned=False)}
    diffs = ["", *(diff_structures(parent, step) for parent, step in pairwise(chain))]
    return {
        "run": run,
        "evidence": queries.evidence_of(store, run),
        "seed_configs": store.load_run(run).seed_configs,
        "table": load_table(store, run),
        "plan": load_plan(store, run),
        "ancestors": [
            {**_plain(step, best), "gain_at_config": known.get(step.kernel), "diff": text}
            for step, text in zip(chain, diffs, strict=False)
        ],
        "children": [_plain(step, best) for step in family_tree.children(steps, digest)],
    }


def as_text(store: Store, digest: str, run: int | None = None, diffs: bool = True) -> str:
    """The same as an indented tree with unified diffs."""
    history = as_dict(store, digest, run)
    times = history["evidence"]
    seed = formats.format_seed(history["seed_configs"])
    lines = [f"run {history['run']}: from {seed} to {digest[:8]} ({times} times)"]
    for depth, step in enumerate(history["ancestors"]):
        indent = "   " * depth
        lines.append(f"{indent[3:]}{'└─ ' if depth else ''}{_describe(step, times)}")
        lines += [f"{indent}{step['rationale']}"] if step["rationale"] else []
        lines += [f"{indent}{line}".rstrip() for line in step["diff"].splitlines()] if diffs else []
    if history["children"]:
        indent = "   " * (len(history["ancestors"]) - 1)
        lines.append(f"{indent}children, best first")
        lines += [f"{indent}├─ {_describe(step, times)}" for step in history["children"]]
    lines += format_table(history["table"], times, history["seed_configs"]) if history["table"] else []
    lines += ["plan", *(f"  {format_idea(idea)}" for idea in history["plan"])] if history["plan"] else []
    return "\n".join(lines) + "\n"


def load_plan(store: Store, run: int) -> list[dict[str, Any]]:
    """The plan of a run's task on its device: each idea, and what became of it."""
    of = store.load_run(run)
    return recall_plan(IdeaPlan(), store, of.task, of.facts.target).as_rows()


def diff_structures(parent: LineageStep, child: LineageStep) -> str:
    """The unified diff from a parent's structure to its child's, without SPACE and CONFIG, which tuning changes."""
    before, after = (
        Kernel.parse(step.source).with_changes(space={}, config={}).render().splitlines(keepends=True)
        for step in (parent, child)
    )
    return "".join(difflib.unified_diff(before, after, parent.kernel[:8], child.kernel[:8], n=2))


def _describe(step: dict[str, Any], evidence: str) -> str:
    origin = formats.format_origin(step["edit"], step["proposer"]) if step["edit"] else "seed"
    result = "never accepted" if step["score"] is None else formats.format_speedup(step["score"], evidence)
    if step["edit"] and step.get("gain_at_config") is not None:
        result += f", {formats.format_gain(step['gain_at_config'])} its parent with the last kernel's config"
    elif step["gain"] is not None:
        result += f", {formats.format_gain(step['gain'])} its parent with each one's own best config"
    trials = formats.format_count(step["trials"], "trial")
    first, best = step["number"], step["best_trial"]
    tried = f"trial {first}" if best in (None, first) else f"first in trial {first}, best in trial {best}"
    return f"{step['kernel'][:8]}  {origin}, {tried}: {result}, {trials}"


def load_gains(store: Store, run: int, digest: str) -> dict[str, float | None]:
    """What each ancestor gains with this kernel's best config (`record/steps.py`); empty where that was not timed."""
    best = next((t for t in queries.best_trials(store, run, abandoned=False) if t["kernel"] == digest), None)
    if best is None:
        return {}
    candidate = candidate_digest(store.load_run(run).task, digest, best["config"])
    return load_step_gains(store, candidate, best["device"])


def _plain(step: LineageStep, best: Mapping[str, int]) -> dict[str, Any]:
    """A step without its source, and with its best trial."""
    return {**{n: v for n, v in vars(step).items() if n != "source"}, "best_trial": best.get(step.kernel)}
