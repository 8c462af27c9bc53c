"""`dataset`: databases as training data in a folder, split by families of tasks, with a card that says what is in it.

A row is a page with its parent and all its answers, the useless ones too, as JSON lines.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import kernelsearch
from kernelsearch.core import files
from kernelsearch.core.errors import KernelsearchError, TargetError, TrainError
from kernelsearch.core.slow_steps import Say
from kernelsearch.core.types import TaskFacts, content_digest
from kernelsearch.env.levels import Reward, reward_recorded
from kernelsearch.kernel import targets
from kernelsearch.kernel.targets import Target
from kernelsearch.propose.grammar import Grammar, NoGrammar
from kernelsearch.propose.proposers import load_machine_facts
from kernelsearch.record import queries
from kernelsearch.record.rows import Run
from kernelsearch.record.store import Store
from kernelsearch.tasks import shipped
from kernelsearch.tasks.narrowing import narrow_to_shapes
from kernelsearch.train.examples import Example, RunReader, keep_one_each, name_families
from kernelsearch.trial.bench import Bench
from kernelsearch.trial.compile_cache import default_folder

TRAIN, TEST = "train", "test"
CARD = "README.md"
MARK = "<!-- written by `kernelsearch dataset` -->"
HELD_OUT = 5
"""Without --test one family of so many is held out, at least one where there are two."""

Row = dict[str, Any]
ReadFacts = Callable[[Run, str], TaskFacts | None]
"""The facts of a run's task by the run and the task file's path; None where the file is not that task any more."""


@dataclass
class Collected:
    """The examples of some databases. kernels are the digests of every kernel by task; left_out counts by reason.

    grammars keeps the form of edits of each kernel, by task.
    """

    examples: list[Example] = field(default_factory=list)
    kernels: dict[str, set[str]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    grammars: dict[str, dict[str, Grammar | NoGrammar]] = field(default_factory=dict)
    runs: int = 0

    def add(self, store: Store, read_facts: ReadFacts) -> None:
        """Adds all runs of a database, oldest first."""
        known = queries.task_files(store)
        for run in reversed(store.load_runs()):
            name, path = known[run.task]
            self.kernels.setdefault(name, set()).update(store.load_structures(run.id))
            facts = read_facts(run, path)
            if facts is None:
                self.left_out["a run whose task file is gone or has changed"] += 1
                continue
            place = load_machine_facts(store, facts, run.facts.target, _target_of(run))
            reader = RunReader(store, run, facts, place, self.left_out, self.grammars.setdefault(run.task, {}))
            self.examples += reader.read()
            self.runs += 1
        self.examples = keep_one_each(self.examples)


def collect(databases: Sequence[str], say: Say) -> Collected:
    """The examples of these databases; every task file is opened once. Raises StoreError."""
    known: dict[tuple[str, str], TaskFacts | None] = {}

    def read_facts(run: Run, path: str) -> TaskFacts | None:
        key = (path, run.task)
        if key not in known:
            known[key] = _open_facts(path, run.task, say)
        facts = known[key]
        return facts and narrow_to_shapes(facts, run.facts.settings.get("shapes", ()))

    collected = Collected()
    for database in databases:
        if not Path(database).is_file():
            raise TrainError(f"no such file: {database}")
        with Store.open(database, write=False) as store:
            say(f"reading {database}")
            collected.add(store, read_facts)
    return collected


def _target_of(run: Run) -> Target | None:
    """The machine model of a run's target or device; None where no such machine is known."""
    with suppress(TargetError):
        return targets.target_for_device(run.facts.target, 0)
    return None


def _open_facts(path: str, digest: str, say: Say) -> TaskFacts | None:
    try:
        with Bench.open(path, compiled=default_folder(), say=say) as bench:
            return bench.facts if bench.facts.digest == digest else None
    except KernelsearchError as error:
        say(f"{path} is left out: {error}")
        return None


# ---------------------------------------------------------------- what is written


@dataclass(frozen=True)
class Split:
    """The families of training and of test."""

    families: Mapping[str, str]
    test: frozenset[str]

    def of(self, example: Example) -> str:
        return TEST if self.families[example.task] in self.test else TRAIN


def split_families(collected: Collected, given: Mapping[str, str], test: Iterable[str]) -> Split:
    """The split by families. Raises TrainError for a family that is not there."""
    families = name_families(collected.kernels, dict(given), lambda name: name.split("_")[0])
    every = sorted(set(families.values()), key=content_digest)
    if unknown := sorted(given.keys() - collected.kernels.keys()):
        raise TrainError(f"no task is called {unknown[0]}: they are {', '.join(sorted(collected.kernels))}")
    if unknown := sorted(set(test) - set(every)):
        raise TrainError(f"no family is called {unknown[0]}: they are {', '.join(sorted(every))}")
    return Split(families, frozenset(test) or frozenset(every[: max(1, len(every) // HELD_OUT)][: len(every) - 1]))


def make_pages(collected: Collected, split: Split) -> dict[str, list[Row]]:
    """The rows by split: a page each, with its parent and all its answers."""
    about = "form family task task_file parent system page base".split()
    pages: dict[tuple[str, str, str], list[Example]] = {}
    for example in collected.examples:
        one = replace(example, family=split.families[example.task])
        pages.setdefault((one.form, one.task, one.parent), []).append(one)
    rows: dict[str, list[Row]] = {}
    for same in pages.values():
        row = {name: getattr(same[0], name) for name in about}
        row |= {f"{name}s": [getattr(e, name) for e in same] for name in ("answer", "gain", "reason", "evidence")}
        rows.setdefault(split.of(same[0]), []).append(row)
    return rows


def write(out: Path, collected: Collected, split: Split) -> str:
    """Writes the folder; gives its card. Raises TrainError for a folder that is something else, or without rows."""
    refuse_other_folder(out, CARD, MARK)
    pages = make_pages(collected, split)
    if not pages:
        raise TrainError(
            "these databases have no answers to learn from: search more with `kernelsearch optimize TASK.py`"
        )
    written = {
        f"pages/{name}.jsonl": "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
        for name, rows in pages.items()
    }
    card = write_card(collected, split, pages)
    files.write_folder(out, {**written, CARD: card.encode()})
    return card


def refuse_other_folder(out: Path, name: str, mark: str) -> None:
    """Raises TrainError for a path that is there and holds something that this program did not write."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        card = out / name
        if not card.is_file() or mark not in card.read_text(encoding="utf-8"):
            raise TrainError(f"{out} holds something else: name a folder that is new or empty")


# ---------------------------------------------------------------- the card


def list_rewards(page: Mapping[str, Any]) -> list[Reward]:
    """The reward of each answer of a row of `pages`, as the record knows it."""
    return [reward_recorded(*one) for one in zip(page["gains"], page["reasons"], page["evidences"], strict=True)]


def write_card(collected: Collected, split: Split, pages: Mapping[str, Sequence[Row]]) -> str:
    """The dataset's card: how many rows, from what, under which licences, and how the splits were made."""
    lines = ["---", "configs:", "- config_name: pages", "  data_files:"]
    lines += [f"  - split: {name}\n    path: pages/{name}.jsonl" for name in (TRAIN, TEST) if name in pages]
    lines += ["---", MARK, "", "# Pages and answers of kernelsearch", ""]
    lines.append(
        f"From {collected.runs} runs over {len(collected.kernels)} tasks by kernelsearch {kernelsearch.__version__}. "
        "Gains are logs of the parent's time over the answer's. A page has all its answers, the useless ones too. A "
        "change of a kernel is there once."
    )
    lines += ["", "| split | pages | answers | tasks |", "|---|---|---|---|"]
    for name in (TRAIN, TEST):
        if rows := pages.get(name):
            answers, tasks = sum(len(r["answers"]) for r in rows), len({r["task"] for r in rows})
            lines.append(f"| {name} | {len(rows)} | {answers} | {tasks} |")
    evidence = Counter(e.evidence for e in collected.examples if e.gained)
    words = ", ".join(f"{n} {word}" for word, n in sorted(evidence.items())) or "no answer gained"
    lines += ["", f"Evidence of the gains: {words}.", ""]
    lines += [
        "No kernel of a task in `test` is in `train`: tasks that share one are one family.",
        "Copies with other names are not found.",
        "",
        "| task | family | split | kernels | licence |",
        "|---|---|---|---|---|",
    ]
    paths = {e.task: e.task_file for e in collected.examples}
    for task, kernels in sorted(collected.kernels.items()):
        family = split.families[task]
        where = TEST if family in split.test else TRAIN
        lines.append(f"| {task} | {family} | {where} | {len(kernels)} | {read_licence(paths.get(task, ''))} |")
    lines += ["", "Left out:", ""]
    lines += [f"- {count} times {reason}" for reason, count in sorted(collected.left_out.items())] or ["- nothing"]
    return "\n".join(lines) + "\n"


def read_licence(path: str) -> str:
    """The licence of a task file: what its SPDX line says, this package's for a shipped one, else that none is said."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError:
        return "not stated"
    if found := re.search(r"SPDX-License-Identifier:\s*(\S[^\n*]*)", text):
        return found[1].strip()
    return "MIT" if text in map(shipped.text, shipped.names()) else "not stated"
