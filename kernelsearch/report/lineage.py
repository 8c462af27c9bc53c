"""A kernel's story: who proposed each step from the seed to it, what that changed and gained; and its children."""

from __future__ import annotations

import difflib
from dataclasses import asdict
from typing import Any

from kernelsearch.kernel.source import Kernel
from kernelsearch.record import lineage
from kernelsearch.record.lineage import Step
from kernelsearch.record.store import Store


def as_dict(store: Store, digest: str, run: int | None = None) -> dict[str, Any]:
    """For `--json`: the run, its evidence, ancestors from the seed to the kernel with diffs, and children without."""
    run = lineage.run_of(store, digest, run)
    steps = lineage.tree(store, run)
    chain = lineage.ancestors(steps, digest)
    above: list[Step | None] = [None, *chain]
    return {
        "run": run,
        "evidence": evidence(store, run),
        "ancestors": [
            {**_plain(step), "diff": diff(parent, step) if parent else ""}
            for parent, step in zip(above, chain, strict=False)
        ],
        "children": [_plain(step) for step in lineage.children(steps, digest)],
    }


def as_text(store: Store, digest: str, run: int | None = None, diffs: bool = True) -> str:
    """The same as an indented tree with unified diffs."""
    story = as_dict(store, digest, run)
    lines = [f"run {story['run']}: from the seed to {digest[:8]} ({story['evidence']} times)"]
    for depth, step in enumerate(story["ancestors"]):
        lines.append(f"{'   ' * (depth - 1)}{'└─ ' if depth else ''}{_said(step, story['evidence'])}")
        lines += _indented(step, depth, diffs)
    if story["children"]:
        depth = len(story["ancestors"])
        lines.append(f"{'   ' * (depth - 1)}children, best first")
        lines += [f"{'   ' * (depth - 1)}├─ {_said(step, story['evidence'])}" for step in story["children"]]
    return "\n".join(lines) + "\n"


def diff(parent: Step, child: Step) -> str:
    """The unified diff from a parent's structure to its child's: SPACE and CONFIG, which tuning moves, are left out."""
    return "".join(
        difflib.unified_diff(
            _structure(parent).splitlines(keepends=True),
            _structure(child).splitlines(keepends=True),
            parent.kernel[:8],
            child.kernel[:8],
            n=2,
        )
    )


def _structure(step: Step) -> str:
    return Kernel.parse(step.source).changed(space={}, config={}).render()


def evidence(store: Store, run: int) -> str:
    """The word for a run's times: `estimated` or `measured`."""
    found = store.query("SELECT DISTINCT evidence FROM trial WHERE run = ? AND evidence IS NOT NULL", [run])
    return " and ".join(sorted(row["evidence"] for row in found)) or "no"


def _indented(step: dict[str, Any], depth: int, diffs: bool) -> list[str]:
    indent = "   " * depth
    lines = [f"{indent}{step['rationale']}"] if step["rationale"] else []
    if diffs and step["diff"]:
        lines += [f"{indent}{line}".rstrip() for line in step["diff"].splitlines()]
    return lines


def _said(step: dict[str, Any], evidence: str) -> str:
    by = f"{step['edit']} by {step['proposer'] or 'a proposer'}" if step["edit"] else "seed"
    if step["score"] is None:
        result = "never accepted"
    else:
        result = f"{1 / step['score']:.2f}x the seed ({evidence})"
        if step["gain"] is not None:
            result += f", {step['gain']:.2f}x its parent"
    trials = "1 trial" if step["trials"] == 1 else f"{step['trials']} trials"
    return f"{step['kernel'][:8]}  {by}, trial {step['number']}: {result}, {trials}"


def _plain(step: Step) -> dict[str, Any]:
    plain = asdict(step)
    del plain["source"]
    return plain
