"""The kernels of a task on a device: the trees of its runs, and for each kernel all that its part of the page says."""

from __future__ import annotations

import json
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from kernelsearch.core import formats
from kernelsearch.core.types import Config, Trial, is_gain
from kernelsearch.kernel.source import Kernel
from kernelsearch.measure.hints.changes import withdraw_tried
from kernelsearch.record import family_tree, queries
from kernelsearch.record.family_tree import LineageStep
from kernelsearch.record.rows import Row, columns
from kernelsearch.record.steps import CONFIG_ALONE, is_config_alone
from kernelsearch.record.store import Store
from kernelsearch.report.findings import format_headline
from kernelsearch.report.lineage import diff_structures, load_gains

Facts = dict[str, Any]

SHOWN_DEPTH = 2
"""Levels of a tree that are open at first, with the way to the best kernel."""


def load_kernels(
    store: Store, place: Mapping[str, Any], runs: Sequence[Row], findings: Sequence[Row]
) -> tuple[list[Facts], dict[str, Facts]]:
    """The tree of each run, the best run's first, and the facts of each kernel, of the run where it did best."""
    trees, kernels = list[Facts](), dict[str, Facts]()
    for run in runs:
        steps = family_tree.load_tree(store, run["id"])
        own = _describe_kernels(store, place, run, steps)
        for digest, kernel in own.items():
            if digest not in kernels or (kernel["speedup"] or 0) > (kernels[digest]["speedup"] or 0):
                kernels[digest] = kernel
        trees.append({"run": run, "lines": list(_walk_tree(own))})
    for finding in findings:
        if finding["kernel"] in kernels:
            kernels[finding["kernel"]]["confirmed"].append(f"{finding['status']}: {format_headline(finding)}")
    return trees, kernels


def _describe_kernels(
    store: Store, place: Mapping[str, Any], run: Row, steps: Mapping[str, LineageStep]
) -> dict[str, Facts]:
    rejections = queries.first_rejections(store, run["id"])
    best = {row["kernel"]: row for row in queries.best_trials(store, run["id"], abandoned=True)}
    about = defaultdict[str, list[Trial]](list)  # a kernel's own trials, and those of its children
    for trial in store.load_trials(run["id"]):
        for digest in {trial.kernel, *trial.proposal.parents}:
            about[digest].append(trial)
    hints = {d: withdraw_tried(found, d, about[d]) for d, found in queries.best_hints(store, run["id"]).items()}
    ranked = [row["kernel"] for row in queries.best_trials(store, run["id"], abandoned=False)]
    known = load_gains(store, run["id"], ranked[0]) if ranked else {}
    seed = next(iter(steps.values()))

    def describe(step: LineageStep) -> Facts:
        parent, trial, rejection = steps.get(step.parent or ""), best.get(step.kernel), rejections.get(step.kernel)
        gain, speedup = known.get(step.kernel if parent else ""), 1 / step.score if step.score else None
        best_of_run = bool(parent) and step.kernel in ranked[:1]
        alone = best_of_run and speedup and is_config_alone(speedup, known.get(seed.kernel))
        why = f"{rejection['verdict']} ({rejection['stage']}): {rejection['reason']}" if rejection else None
        return {
            **columns(step, "kernel edit rationale proposer trials accepted gain"),
            "gain_at_config": gain,
            "step": gain or step.gain,
            "alone": CONFIG_ALONE if alone else "",
            "parent": parent.kernel if parent else None,
            "first": step.number,
            "run": run,
            "speedup": speedup,
            "why": why,
            "hints": [formats.explain_hint(hint) for hint in hints.get(step.kernel, [])],
            "hints_before": [formats.explain_hint(hint) for hint in hints.get(parent.kernel if parent else "", [])],
            "best": trial,
            "times": trial["times"] if trial else {},
            "confirmed": [],
            "configs": list_triton_configs(trial["config"]) if trial else [],
            "commands": _list_commands(store, place, run, step.kernel),
            "versions": json.loads(run["versions"]),
            "steps": (seed, *(one for one in (parent, step) if one and one != seed)),
        }

    return {digest: describe(step) for digest, step in steps.items()}


def sum_up_earnings(kernels: Sequence[Facts], column: str) -> list[Facts]:
    """The rewritten kernels per `edit` or `proposer`: tried, accepted, improved; the best step as its part has it."""
    groups: dict[str, list[Facts]] = {}
    for kernel in kernels:
        if kernel["edit"]:
            groups.setdefault(kernel[column], []).append(kernel)
    earned = [
        {
            "name": name,
            "tried": len(own),
            "accepted": sum(k["accepted"] > 0 for k in own),
            "improved": sum(bool(k["step"]) and is_gain(k["step"]) for k in own),
            "best": max((k["step"] for k in own if k["step"]), default=None),
        }
        for name, own in groups.items()
    ]
    return sorted(earned, key=lambda e: (-e["improved"], -(e["best"] or 0), -e["tried"]))


def list_triton_configs(config: Config) -> list[tuple[str, str]]:
    """`(function, triton.Config(...))` for each function that a config names; `""` where all share it."""
    functions: dict[str, dict[str, Any]] = {}
    for name, value in config.items():
        function, _, own = name.rpartition(".")
        functions.setdefault(function, {})[own] = value
    return [(name, formats.format_triton_config(values)) for name, values in functions.items()]


def _list_commands(store: Store, place: Mapping[str, Any], run: Row, digest: str) -> list[str]:
    """What judges and times a stored kernel again, and what repeats the run that found it."""
    task, db = shlex.quote(Path(place["path"]).name), shlex.quote(Path(store.path).name)
    options = f"--strategy {shlex.quote(run['strategy'])} --seed {run['seed']} --window {run['window']}"
    return [
        f"kernelsearch show {digest} --db {db} > kernel.py",
        f"kernelsearch verify {task} kernel.py",
        f"kernelsearch measure {task} kernel.py --db {db}",
        f"kernelsearch optimize {task} --trials {run['budget']} {options} --db again.db",
    ]


# ---------------------------------------------------------------- trees


def _walk_tree(kernels: dict[str, Facts]) -> Iterator[Facts]:
    """The lines of a tree, each kernel before those made from it, by their best descendants.

    way marks the path to the best kernel; closes is how many lists end after the line.
    """
    reach = {digest: kernel["speedup"] or 0.0 for digest, kernel in kernels.items()}
    below = dict.fromkeys(kernels, 0)
    children: dict[str | None, list[str]] = {}
    for digest, kernel in reversed(kernels.items()):  # parents come before their children
        children.setdefault(kernel["parent"], []).append(digest)
        if (parent := kernel["parent"]) is not None:
            reach[parent] = max(reach[parent], reach[digest])
            below[parent] += 1 + below[digest]
    way: set[str] = set()
    best = max(kernels, key=lambda digest: kernels[digest]["speedup"] or 0.0)
    at: str | None = best
    if not is_gain(reach[best]):  # then the seed is the best, if anything is
        at = next(iter(kernels)) if reach[best] else None
    while at is not None:
        way.add(at)
        at = kernels[at]["parent"]
    for digests in children.values():
        digests.sort(key=lambda d: (d not in way, -reach[d], kernels[d]["first"]))
    waiting = [(root, 0, 0) for root in reversed(children.get(None, []))]
    while waiting:
        digest, depth, ends = waiting.pop()
        own = children.get(digest, [])
        yield {
            "of": kernels[digest],
            "below": below[digest],
            "reach": reach[digest],
            "way": digest in way,
            "best_of_all": digest in way and not any(d in way for d in own),
            "open": depth < SHOWN_DEPTH or digest in way,
            "closes": 0 if own else ends,
        }
        last = len(own) - 1
        waiting += [(d, depth + 1, ends + 1 if n == last else 0) for n, d in reversed(list(enumerate(own)))]


# ---------------------------------------------------------------- code


def render_code(kernel: Facts) -> Facts:
    """A kernel's source with its best config, in Python's colours, and its diffs from the seed and from its parent."""
    steps, best = kernel["steps"], kernel["best"]
    seed, own = steps[0], steps[-1]
    source = Kernel.parse(own.source).with_changes(config=dict(best["config"])).render() if best else own.source
    parent = steps[-2] if len(steps) > 1 else None
    return {
        "source": colour_python(source),
        "from_parent": diff_code(parent, own) if parent else (),
        "from_seed": diff_code(seed, own) if parent and parent != seed else (),
    }


@lru_cache(4096)
def colour_python(source: str) -> str:
    """HTML, escaped; its classes are those of Pygments."""
    import pygments
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return pygments.highlight(source.strip("\n"), PythonLexer(), HtmlFormatter(nowrap=True))


@lru_cache(8192)
def diff_code(before: LineageStep, after: LineageStep) -> tuple[tuple[str, str], ...]:
    """Each line of `diff_structures` with its kind: `add`, `del`, `at`, or nothing for what is kept."""
    kinds = {"+": "add", "-": "del", "@": "at"}
    lines = diff_structures(before, after).splitlines()[2:]
    return tuple((kinds.get(line[:1], ""), "⋯" if line[:1] == "@" else line) for line in lines)
